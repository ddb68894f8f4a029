"""The SQL that decides: what is due, who may fold, what was folded, what nobody has looked at.

Statements are grouped as a job meets them. Times come from the database's clock alone: ``clock_timestamp()``, because
``now()`` stands still within a transaction that had to wait for a lock.
"""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, INTEGER, TEXT, TIMESTAMP, UUID

_UUIDS = ARRAY(UUID(as_uuid=True))
_TEXTS = ARRAY(TEXT)
_BIGINTS = ARRAY(BIGINT)
_TIMES = ARRAY(TIMESTAMP(timezone=True))

# The one predicate for "waiting to be folded"; the index summary_nodes_uncovered has it too.
UNCOVERED = "n.superseded_by is null and n.dismissed_at is null and n.retired_at is null and not n.degraded"

# The sessions and levels with enough uncovered nodes for a fold, by the level to be made. One has been due since the last node
# that was needed for it came.
WAITING = f"""
    select n.session_id, n.level + 1 as level, count(*) as nodes, min(n.created_at) as oldest,
           (array_agg(n.created_at order by n.created_at))[:threshold] as due_since
      from mneme.summary_nodes n
     where {UNCOVERED} and n.level < :max_level
     group by n.session_id, n.level having count(*) >= :threshold"""

# A declined node may ride along with the next fold, but is never counted.
_DECLINED = "n.superseded_by is null and n.retired_at is null and not n.degraded and n.dismissed_reason = 'declined'"

# The one call that an open breaker lets through is under way. However its run ends, the next may try.
PROBE_RUNS = """exists (select from mneme.compaction_runs p where p.id = b.probe_run_id
                               and p.state = 'running' and p.lease_expires_at >= clock_timestamp())"""

# Everything is paused; one row, read once a statement.
ALL_PAUSED = "(select v.paused_at from mneme.service_state v) is not null"


def _spent(interval: str, where: str = "") -> str:
    # Up to the statement's beginning: only a time that stands still within a statement can be looked up in an index.
    return f"""(select coalesce(sum(x.prompt_tokens + x.completion_tokens), 0) from mneme.compaction_runs x
                 where x.finished_at > statement_timestamp() - interval '{interval}'{where})"""


# Which cap the session s has reached by itself, and which all sessions together; null: none. A sum is made only where there
# is such a cap, which then bounds how many runs there can be to be summed up; those of all sessions once a statement.
CAPPED_ALONE = f"""case
    when :cap_session_hour > 0 and {_spent("1 hour", " and x.session_id = s.id")} >= :cap_session_hour
         then 'session_tokens_per_hour'
    when :cap_session_day > 0 and {_spent("24 hours", " and x.session_id = s.id")} >= :cap_session_day
         then 'session_tokens_per_day' end"""
CAPPED_TOGETHER = f"""case
    when :cap_hour > 0 and {_spent("1 hour")} >= :cap_hour then 'tokens_per_hour'
    when :cap_day > 0 and {_spent("24 hours")} >= :cap_day then 'tokens_per_day' end"""
CAPPED = f"coalesce({CAPPED_TOGETHER}, {CAPPED_ALONE})"

# The one predicate for what keeps a session that is due from being folded now; null: nothing does. Claim, sweep and
# status all use it, on the session s, the newest run r of the level to be made, and the breaker b of the model's server.
# A run whose lease has passed holds nothing: the next claim closes it.
HOLD = f"""case when s.paused_at is not null or {ALL_PAUSED} then 'paused'
            when r.state = 'running' and r.lease_expires_at >= clock_timestamp() then 'already_running'
            when {CAPPED} is not null then 'held'
            when r.retry_at > clock_timestamp() then 'backing_off'
            when b.held_until > clock_timestamp() or {PROBE_RUNS} then 'held' end"""

# The breaker is open and its time is up: one call is let through to try.
PROBING = "b.held_until is not null"

JOIN_BREAKER = "left join mneme.breakers b on b.base_url = :base_url and b.model = :model"

NODE_COLUMNS = """
    n.id, n.session_id, n.level, n.kind, n.span_start, n.span_end, n.started_at, n.ended_at, n.token_count,
    n.reported_tokens, n.superseded_by, n.superseded, n.dismissed_at, n.dismissed_reason, n.retired_at,
    n.retired_reason, n.replaced_by, n.compaction_level, n.degraded, n.model, n.prompt_version, n.run_id, n.fidelity,
    n.created_at, p.content,
    array(select e.parent_id from mneme.summary_edges e where e.node_id = n.id order by e.ordinal) as parent_node_ids"""

NODES = "mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0"

# ------------------------------------------------------------------------------------------------ counting

# The lowest level that is due, for each of the given sessions: one index range per session and level, and no further
# than :enough. A session that is unknown, or has nothing due, comes back with the count of its level 1.
COUNT = text(f"""
    select s.id as session_id, c.level + 1 as level, c.uncovered, c.uncovered >= :threshold as due
      from unnest(:session_ids) as s (id)
     cross join lateral (
        select k.level, (select count(*) from (
                    select from mneme.summary_nodes n
                     where n.session_id = s.id and n.level = k.level and {UNCOVERED} limit :enough) as counted) as uncovered
          from generate_series(1, :max_level - 1) as k (level)) as c
     where c.level = 1 or c.uncovered >= :threshold
     order by s.id, c.uncovered >= :threshold desc, c.level
""").bindparams(bindparam("session_ids", type_=_TEXTS))

# ------------------------------------------------------------------------------------------------ claiming

# (a) A lease that has passed. If its holder is committing just now, this waits, and then finds it succeeded.
EXPIRE_ONE = text("""
    update mneme.compaction_runs
       set state = 'expired', crashes = crashes + 1, finished_at = clock_timestamp()
     where session_id = :session_id and level = :level and state = 'running' and lease_expires_at < clock_timestamp()
""")

# (b) The unique index on running runs lets one through.
INSERT_RUN = text("""
    insert into mneme.compaction_runs (session_id, level, lease_expires_at, worker, base_url, model)
    values (:session_id, :level, clock_timestamp() + make_interval(secs => :lease_seconds), :worker, :base_url, :model)
    on conflict (session_id, level) where state = 'running' do nothing
    returning id
""")

# (c) Read in statements of their own: only they see what a holder committed while (a) or (b) waited for it.
READ_HOLDS = text(f"""
    select {HOLD} as hold, {PROBING} as probing, r.id as previous_id, r.state, r.attempt, r.content_failures, r.crashes,
           r.error_kind, r.input_ids
      from mneme.sessions s
      left join lateral (
        select * from mneme.compaction_runs
         where session_id = :session_id and level = :level and id <> :run_id and repairs is null
         order by started_at desc, id desc limit 1) as r on true
      {JOIN_BREAKER}
     where s.id = :session_id
""")

OLDEST_UNCOVERED = text(f"""
    select {NODE_COLUMNS} from {NODES}
     where n.session_id = :session_id and n.level = :level and {UNCOVERED}
     order by n.span_start, n.span_end, n.id limit :most
""")

STILL_UNCOVERED = text(f"""
    select {NODE_COLUMNS} from {NODES}
     where n.id = any (:node_ids) and {UNCOVERED}
     order by n.span_start, n.span_end, n.id
""").bindparams(bindparam("node_ids", type_=_UUIDS))

DECLINED_BEFORE = text(f"""
    select {NODE_COLUMNS} from {NODES}
     where n.session_id = :session_id and n.level = :level and n.span_start <= :span_start and {_DECLINED}
     order by n.span_start, n.span_end, n.id limit :most
""")

# (d) The run is now really begun. The run before it is no longer the session's state, so its retry_at is taken away (below):
# the sweep then finds newest runs alone by their retry_at.
BEGIN_RUN = text("""
    update mneme.compaction_runs r
       set attempt = :attempt, content_failures = :content_failures, crashes = :crashes, input_ids = :input_ids,
           lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds),
           started_at = greatest(clock_timestamp(), (
               select before.started_at + interval '1 microsecond'
                 from mneme.compaction_runs before where before.id = :previous_id))
     where r.id = :run_id
""").bindparams(bindparam("input_ids", type_=_UUIDS))

# Also that of a repair, which is left there only to be found by.
FORGET_RETRIES_BEFORE = text("""
    update mneme.compaction_runs set retry_at = null
     where session_id = :session_id and level = :level and id <> :run_id and retry_at is not null
       and (id = :previous_id or repairs is not null)
""")

# The breaker lets one call through: two claims wait for each other at the lock. The next statement, and only that, sees
# the run of whoever was first.
LOCK_BREAKER = text("""
    select from mneme.breakers where base_url = :base_url and model = :model for no key update
""")

TAKE_PROBE = text(f"""
    update mneme.breakers b set probe_run_id = :run_id, changed_at = clock_timestamp()
     where b.base_url = :base_url and b.model = :model and b.held_until <= clock_timestamp() and not {PROBE_RUNS}
""")

SHRINK_RUN = text("""
    update mneme.compaction_runs set input_ids = :input_ids where id = :run_id and state = 'running'
""").bindparams(bindparam("input_ids", type_=_UUIDS))

# ------------------------------------------------------------------------------------------------ ending

LOCK_RUN = text("""
    select state from mneme.compaction_runs where id = :run_id for no key update
""")

# What was spent is spent, whatever became of the run.
NOTE_USAGE = text("""
    update mneme.compaction_runs
       set llm_calls = :llm_calls, prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens
     where id = :run_id and state in ('expired', 'cancelled', 'released') and llm_calls = 0
""")

READ_RUN = text("select state, node_id from mneme.compaction_runs where id = :run_id")

# By id, as every writer of several nodes locks them: two orders are a deadlock. Not "for update", which would wait
# for the foreign-key locks of whoever is adding an edge.
LOCK_NODES = text("""
    select id from mneme.summary_nodes where id = any (:node_ids) order by id for no key update
""").bindparams(bindparam("node_ids", type_=_UUIDS))

# The inputs of a run that is ending: what is no longer there to be covered does not come back.
LOCK_BATCH = text(f"""
    select n.id from mneme.summary_nodes n
     where n.id = any (:node_ids) and (({UNCOVERED}) or ({_DECLINED})) order by n.id for no key update
""").bindparams(bindparam("node_ids", type_=_UUIDS))

# A covered node is nothing for the sweep any more.
SUPERSEDE_BATCH = text(f"""
    update mneme.summary_nodes n
       set superseded_by = :node_id, dismissed_at = null, dismissed_reason = null,
           swept_at = coalesce(n.swept_at, clock_timestamp())
     where n.id = any (:node_ids) and (({UNCOVERED}) or ({_DECLINED}))
""").bindparams(bindparam("node_ids", type_=_UUIDS))

DISMISS = text(f"""
    update mneme.summary_nodes n
       set dismissed_at = clock_timestamp(), dismissed_reason = :reason, swept_at = coalesce(n.swept_at, clock_timestamp())
     where n.id = any (:node_ids) and (({UNCOVERED}) or ({_DECLINED}))
""").bindparams(bindparam("node_ids", type_=_UUIDS))

SET_FIDELITY = text("""
    update mneme.summary_nodes set fidelity = cast(:fidelity as jsonb) where id = :node_id and :fidelity is not null
""").bindparams(bindparam("fidelity", type_=TEXT))

CLOSE_RUN = text("""
    update mneme.compaction_runs
       set state = :state, finished_at = clock_timestamp(), node_id = :node_id, llm_calls = :llm_calls,
           prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens, error_kind = :error_kind, error = :error,
           content_failures = case when :reset then 0 when :error_kind = 'content' and repairs is null
                                        then content_failures + 1
                                   else content_failures end,
           crashes = case when :reset then 0 else crashes end,
           retry_at = case when :state = 'failed' and repairs is null
                           then clock_timestamp() + make_interval(secs => :retry_seconds) end
     where id = :run_id and state = 'running'
""")

# A run that ends while its session is still due, and nothing holds it, is what the sweep finds should the message that
# is published next be lost.
RETRY_NOW = text("""
    update mneme.compaction_runs set retry_at = clock_timestamp()
     where id = :run_id and state <> 'running' and retry_at is null
""")

# ------------------------------------------------------------------------------------------------ the breaker

# Its row is locked last of all, after the run and the nodes.
CLOSE_BREAKER = text("""
    delete from mneme.breakers where base_url = :base_url and model = :model returning held_until is not null
""")

# What failed by its settings waits for an hour, for nothing would have come of trying sooner. Now settings work: the same,
# if that closed their breaker, else those of another model or address. A thousand at a time: more answers will come.
RETRY_CONFIGURATION_FAILURES = text("""
    update mneme.compaction_runs set retry_at = clock_timestamp()
     where id in (select id from mneme.compaction_runs
                   where retry_at > statement_timestamp() and error_kind = 'configuration'
                     and (:closed or base_url is distinct from :base_url or model is distinct from :model)
                   order by retry_at limit 1000 for no key update skip locked)
""")

# A server that nobody asks any more: whoever asks one that fails changes its row every few minutes.
FORGET_BREAKERS = text("""
    delete from mneme.breakers
     where (base_url, model) in (
        select base_url, model from mneme.breakers
         where greatest(changed_at, held_until) < clock_timestamp() - interval '1 day' for update skip locked)
""")

COUNT_FAILURE = text("""
    insert into mneme.breakers as b (base_url, model, failures, last_session_id, error)
    values (:base_url, :model, 1, :session_id, :error)
    on conflict (base_url, model) do update
       set failures = b.failures + case when b.last_session_id is distinct from :session_id then 1 else 0 end,
           last_session_id = :session_id, error = :error, changed_at = clock_timestamp()
""")

# A call that was under way when the breaker opened says nothing new; a failed probe holds for twice as long as before,
# up to sixteen times the setting.
OPEN_BREAKER = text("""
    update mneme.breakers
       set held_until = clock_timestamp() + make_interval(secs => :seconds * power(2, least(openings, 4))),
           openings = openings + 1, probe_run_id = null, changed_at = clock_timestamp()
     where base_url = :base_url and model = :model
       and (held_until is null and failures >= :failures or probe_run_id = :run_id)
""")

RELEASE_WORKER = text("""
    update mneme.compaction_runs
       set state = 'released', finished_at = clock_timestamp(), retry_at = clock_timestamp()
     where state = 'running' and worker = :worker
""")

LAST_FAILURE = text("""
    select error from mneme.compaction_runs where session_id = :session_id and state = 'failed'
     order by started_at desc, id desc limit 1
""")

# ------------------------------------------------------------------------------------------------ sweeping

NOTE_SWEEP = text("update mneme.service_state set swept_at = clock_timestamp(), swept_by = :worker")

NOTE_RESCUED = text("update mneme.service_state set rescued = rescued + :sessions")

EXPIRE_MANY = text("""
    update mneme.compaction_runs
       set state = 'expired', crashes = crashes + 1, finished_at = clock_timestamp(), retry_at = clock_timestamp()
     where id in (select id from mneme.compaction_runs
                   where state = 'running' and lease_expires_at < clock_timestamp()
                   order by lease_expires_at limit :most for no key update skip locked)
""")

_NOT_ENQUEUED_LATELY = """
       (s.enqueued_at is null or s.enqueued_at < clock_timestamp() - make_interval(secs => :requeue_seconds))"""
_MAY_BE_ENQUEUED = f"s.paused_at is null and {_NOT_ENQUEUED_LATELY}"

UNSWEPT = text(f"""
    select n.id, n.session_id, s.paused_at is not null as paused
      from mneme.summary_nodes n join mneme.sessions s on s.id = n.session_id
     where n.swept_at is null and n.created_at < clock_timestamp() - make_interval(secs => :grace_seconds)
       and (s.paused_at is not null or {_NOT_ENQUEUED_LATELY})
     order by n.created_at, n.id limit :most
""")

# A session that is being resumed just now is passed over: its trigger unmarks a node, and must not come before our mark.
STILL_PAUSED = text("""
    select id from mneme.sessions where id = any (:session_ids) and paused_at is not null order by id for share skip locked
""").bindparams(bindparam("session_ids", type_=_TEXTS))

RETRIES_DUE = text(f"""
    select r.id, r.session_id, r.level from mneme.compaction_runs r join mneme.sessions s on s.id = r.session_id
     where r.retry_at <= clock_timestamp() and {_MAY_BE_ENQUEUED}
     order by r.retry_at limit :most
""")

# What holds each of the given sessions, at the level that is due.
HOLDS = text(f"""
    select d.session_id, {HOLD} as hold, {PROBING} as probing, {CAPPED_ALONE} is not null as capped_alone, r.id as run_id
      from unnest(:session_ids, :levels) as d (session_id, level)
      join mneme.sessions s on s.id = d.session_id
      left join lateral (
        select * from mneme.compaction_runs c
         where c.session_id = d.session_id and c.level = d.level and (c.repairs is null or c.state = 'running')
         order by c.started_at desc, c.id desc limit 1) as r on true
      {JOIN_BREAKER}
""").bindparams(bindparam("session_ids", type_=_TEXTS), bindparam("levels", type_=ARRAY(INTEGER)))

RUNNING = text("""
    select session_id, level from mneme.compaction_runs where state = 'running' and session_id = any (:session_ids)
""").bindparams(bindparam("session_ids", type_=_TEXTS))

# A run that is ending holds its row, and may have counted before a node was there that we see: it is skipped here, and
# its session is left for the next sweep. A run that we lock will count after us.
RUNNING_LOCKED = text(RUNNING.text + " order by id for share skip locked").bindparams(
    bindparam("session_ids", type_=_TEXTS)
)

# Locked like the running ones, and for the same reason: another sweep, or a claim, may be taking this retry_at away.
TO_BE_RETRIED = text("""
    select session_id, level from mneme.compaction_runs
     where retry_at is not null and session_id = any (:session_ids) order by id for share skip locked
""").bindparams(bindparam("session_ids", type_=_TEXTS))

MARK_SWEPT = text("""
    update mneme.summary_nodes set swept_at = clock_timestamp()
     where id in (select id from mneme.summary_nodes where id = any (:node_ids) and swept_at is null
                   order by id for no key update skip locked)
""").bindparams(bindparam("node_ids", type_=_UUIDS))

FORGET_RETRIES = text("""
    update mneme.compaction_runs set retry_at = null
     where id in (select id from mneme.compaction_runs where id = any (:run_ids) and retry_at is not null
                   order by id for no key update skip locked)
""").bindparams(bindparam("run_ids", type_=_UUIDS))

# A session that has reached its own cap is looked at again in some minutes, and does not keep others from their turn.
POSTPONE = text("""
    update mneme.compaction_runs set retry_at = clock_timestamp() + make_interval(secs => :seconds)
     where id in (select id from mneme.compaction_runs where id = any (:run_ids) and state <> 'running'
                   order by id for no key update skip locked)
    returning session_id
""").bindparams(bindparam("run_ids", type_=_UUIDS))

# Two sweeps at once: the second waits for nothing and takes what the first did not.
TAKE_SESSIONS = text(f"""
    update mneme.sessions set enqueued_at = clock_timestamp()
     where id in (select s.id from mneme.sessions s where s.id = any (:session_ids) and {_MAY_BE_ENQUEUED}
                   order by s.id for no key update skip locked)
    returning id, enqueued_at
""").bindparams(bindparam("session_ids", type_=_TEXTS))

GIVE_BACK_SESSION = text(
    "update mneme.sessions set enqueued_at = null where id = :session_id and enqueued_at = :taken_at"
)

TAKE_FULL_COUNT = text("""
    update mneme.sweep_state
       set full_counted_at = clock_timestamp(), threshold = :threshold, max_level = :max_level
     where full_counted_at is null or full_counted_at < clock_timestamp() - make_interval(secs => :full_count_seconds)
        or threshold is distinct from :threshold or max_level is distinct from :max_level
    returning true
""")

# Everything that is due is made findable again: the oldest waiting node of each such session counts as not yet swept.
UNMARK_DUE = text(f"""
    update mneme.summary_nodes u set swept_at = null
      from (select n.session_id, n.level from mneme.summary_nodes n
             where {UNCOVERED} and n.level < :max_level
             group by n.session_id, n.level having count(*) >= :threshold) as due
     where u.swept_at is not null
       and u.id = (select n.id from mneme.summary_nodes n
                    where n.session_id = due.session_id and n.level = due.level and {UNCOVERED}
                    order by n.span_start, n.span_end, n.id limit 1 for no key update skip locked)
""")

# ------------------------------------------------------------------------------------------------ the store

INSERT_NODE = text("""
    select mneme.insert_summary_node(
        :id, :session_id, :level, :span_start, :span_end, :content, :started_at, :ended_at, :reported_tokens,
        :parent_node_ids, :compaction_level, :degraded, :model, :prompt_version, :run_id)
""").bindparams(bindparam("parent_node_ids", type_=_UUIDS))

ACTIVE_NODES = text(f"""
    select {NODE_COLUMNS} from {NODES}
     where n.session_id = :session_id and n.superseded_by is null and n.retired_at is null
     order by n.span_start, n.span_end, n.id
""")

LATEST_NODE = text(f"""
    select {NODE_COLUMNS} from {NODES}
     where n.session_id = :session_id and n.superseded_by is null and n.retired_at is null
     order by n.created_at desc, n.id desc limit 1
""")

NODE_BY_ID = text(f"select {NODE_COLUMNS} from {NODES} where n.id = :node_id")

# The spans are taken out of the whole number line; what is left are the holes, and only messages inside holes are read.
COVERAGE_GAPS = text("""
    with holes as (
        select unnest(int8multirange(int8range(null, null)) - coalesce(
                   range_agg(int8range(span_start, span_end, '[]')), '{}'::int8multirange)) as hole
          from mneme.summary_nodes where session_id = :session_id and level = 1 and retired_at is null)
    select min(m.seq) as start_seq, max(m.seq) as end_seq, count(*) as message_count, sum(m.tokens)::bigint as estimated_tokens
      from holes h cross join lateral (
        select g.seq, coalesce((
                   select sum(p.token_estimate) from mneme.message_parts p where p.message_id = g.id), 0) as tokens
          from mneme.messages g
         where g.session_id = :session_id
           and g.seq between coalesce(lower(h.hole), -9223372036854775808)
                         and coalesce(upper(h.hole) - 1, 9223372036854775807)
        ) as m
     group by h.hole order by 1
""")

# Which not-retired nodes have edges to the given parents, and to how many of them.
SUCCESSORS = text("""
    select e.node_id from mneme.summary_edges e join mneme.summary_nodes s on s.id = e.node_id and s.retired_at is null
     where e.parent_id = any (:node_ids)
     group by e.node_id having count(*) = :wanted
""").bindparams(bindparam("node_ids", type_=_UUIDS))

STATES = text("""
    select id, superseded_by, retired_at is not null as retired from mneme.summary_nodes where id = any (:node_ids)
""").bindparams(bindparam("node_ids", type_=_UUIDS))

SUPERSEDE = text("""
    update mneme.summary_nodes
       set superseded_by = :by, dismissed_at = null, dismissed_reason = null, swept_at = coalesce(swept_at, clock_timestamp())
     where id = any (:node_ids) and superseded_by is null
""").bindparams(bindparam("node_ids", type_=_UUIDS))

MEMORY = text("select mneme.memory(:session_id, :token_budget, :l1_budget_fraction, :l2_budget_fraction)")

SESSION_EXISTS = text("select exists (select from mneme.sessions where id = :session_id)")

# ------------------------------------------------------------------------------------------------ rights

GRANTS = (
    "usage on schema mneme",
    "execute on function mneme.write_l1_snapshot(text, bigint, bigint, text, timestamptz, timestamptz, integer)",
    "execute on function mneme.memory(text, integer, double precision, double precision)",
    "execute on function mneme.estimate_tokens(text)",
    "select on mneme.active_summary_nodes",
    # The conversation log. is_summary cannot be set, so what a main app appends is a message.
    "select, insert (id, metadata) on mneme.sessions",
    "select, insert (id, session_id, seq, role, model, created_at) on mneme.messages",
    "select, insert (id, message_id, part_index, part_type, content, token_estimate) on mneme.message_parts",
)
