"""The SQL of the status and of ``retry``: what waits and why, in the terms of claim and sweep; and making it due now."""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from models.sql import CAPPED, HOLD, JOIN_BREAKER, PROBE_RUNS, WAITING

_TEXTS = ARRAY(TEXT)

# Every session with enough uncovered nodes at some level, at the lowest such level, by what holds it. It has been due
# since the last node that was needed for it came.
DUE = text(f"""
    with waiting as ({WAITING}),
    lowest as (select distinct on (session_id) * from waiting order by session_id, level),
    held as (
        select w.session_id, w.nodes, w.oldest, w.due_since, {HOLD} as hold, {CAPPED} as cap
          from lowest w join mneme.sessions s on s.id = w.session_id
          left join lateral (
            select * from mneme.compaction_runs c
             where c.session_id = w.session_id and c.level = w.level and (c.repairs is null or c.state = 'running')
             order by c.started_at desc, c.id desc limit 1) as r on true
          {JOIN_BREAKER})
    select coalesce(hold, 'due') as hold, count(*) as sessions, sum(nodes)::bigint as nodes,
           extract(epoch from clock_timestamp() - min(due_since))::float8 as waiting_seconds,
           extract(epoch from clock_timestamp() - min(oldest))::float8 as oldest_seconds,
           (array_agg(session_id order by due_since, session_id))[1:3] as first,
           min(cap) filter (where hold = 'held') as cap
      from held group by 1
""")

# What runs now, whether or not its session has more waiting; and what the runs to be tried again failed of.
RUNNING = text("""
    select count(*) filter (where lease_expires_at >= clock_timestamp()) as running,
           count(*) filter (where lease_expires_at < clock_timestamp()) as dead,
           (select extract(epoch from clock_timestamp() - max(finished_at))::float8
              from mneme.compaction_runs where finished_at is not null) as ended_seconds
      from mneme.compaction_runs where state = 'running'
""")

BACKING_OFF = text("""
    select coalesce(error_kind, state) as kind, count(*) as runs, mode() within group (order by error) as error,
           extract(epoch from max(retry_at) - clock_timestamp())::float8 as longest_seconds
      from mneme.compaction_runs
     where retry_at > clock_timestamp() and state in ('failed', 'expired', 'released') group by 1 order by 2 desc, 1
""")

DISMISSED = text("""
    select d.reason, count.nodes, first.nodes as first
      from unnest(array['crashes', 'too_large', 'content', 'declined', 'restored']) as d (reason)
     cross join lateral (
        select count(*) as nodes from mneme.summary_nodes n
         where n.dismissed_reason = d.reason and n.dismissed_at is not null and n.retired_at is null) as count
     cross join lateral (
        select array_agg(array[newest.id::text, newest.session_id]) as nodes from (
            select n.id, n.session_id from mneme.summary_nodes n
             where n.dismissed_reason = d.reason and n.dismissed_at is not null and n.retired_at is null
             order by n.dismissed_at desc, n.id desc limit 3) as newest) as first
     where count.nodes > 0
""")

DEGRADED = text("""
    select count(*) as nodes,
           (array_agg(array[n.id::text, n.session_id] order by n.created_at desc, n.id desc))[1:3] as first
      from mneme.summary_nodes n where n.degraded and n.retired_at is null and n.superseded_by is null
""")

BREAKERS = text(f"""
    select base_url, model, base_url = :base_url and model = :model as ours, failures, error, held_until is not null as open,
           extract(epoch from held_until - clock_timestamp())::float8 as seconds_left,
           {PROBE_RUNS} as probing
      from mneme.breakers b order by base_url, model
""")

SPENT = text("""
    select coalesce(sum(prompt_tokens) filter (where recent), 0)::bigint as hour_prompt_tokens,
           coalesce(sum(completion_tokens) filter (where recent), 0)::bigint as hour_completion_tokens,
           count(*) filter (where recent and state = 'succeeded') as hour_folds,
           coalesce(sum(prompt_tokens), 0)::bigint as day_prompt_tokens,
           coalesce(sum(completion_tokens), 0)::bigint as day_completion_tokens,
           count(*) filter (where state = 'succeeded') as day_folds
      from (select prompt_tokens, completion_tokens, state,
                   finished_at > statement_timestamp() - interval '1 hour' as recent
              from mneme.compaction_runs where finished_at > statement_timestamp() - interval '24 hours') as runs
""")

SERVICE = text("""
    select paused_at is not null as paused, swept_by, broken_rules, violations,
           extract(epoch from clock_timestamp() - examined_at)::float8 as examined_seconds,
           extract(epoch from clock_timestamp() - swept_at)::float8 as swept_seconds,
           (select count(*) from mneme.sessions where paused_at is not null) as paused_sessions,
           (select version_num from mneme.alembic_version) as schema, rescued
      from mneme.service_state
""")

# ------------------------------------------------------------------------------------------------ retry

# A few hundred sessions at a time, in the order of their ids: one statement over everything would lock everything.
# Each branch by an index in that order, and no further than :most.
TO_RETRY = text("""
    select session_id from (
        (select session_id from mneme.compaction_runs
          where retry_at is not null and retry_at > clock_timestamp() and session_id > :after
          order by session_id limit :most)
        union
        (select distinct session_id from mneme.summary_nodes
          where dismissed_at is not null and retired_at is null
            and dismissed_reason in ('crashes', 'too_large', 'content') and session_id > :after
          order by session_id limit :most)) as found
     order by session_id limit :most
""")

# What somebody else has locked is in motion, and passed over: one row must not hold up the others.
RETRY_RUNS = text("""
    update mneme.compaction_runs set retry_at = clock_timestamp()
     where id in (select id from mneme.compaction_runs
                   where session_id = any (:session_ids) and retry_at > clock_timestamp()
                   order by id for no key update skip locked)
""").bindparams(bindparam("session_ids", type_=_TEXTS))

# Not yet swept, so that the sweep finds them should the message that is published next be lost.
OFFER_AGAIN = text("""
    update mneme.summary_nodes set dismissed_at = null, dismissed_reason = null, swept_at = null
     where id in (select id from mneme.summary_nodes
                   where session_id = any (:session_ids) and superseded_by is null and retired_at is null
                     and dismissed_reason = any (:reasons)
                   order by id for no key update skip locked)
""").bindparams(bindparam("session_ids", type_=_TEXTS), bindparam("reasons", type_=_TEXTS))

# Whose wait or dismissal is still there, because it was passed over.
STILL_WAITING = text("""
    select count(*) from unnest(:session_ids) as s (id)
     where exists (select from mneme.compaction_runs r
                    where r.session_id = s.id and r.retry_at is not null and r.retry_at > clock_timestamp())
        or exists (select from mneme.summary_nodes n
                    where n.session_id = s.id and n.superseded_by is null and n.retired_at is null
                      and n.dismissed_at is not null and n.dismissed_reason = any (:reasons))
""").bindparams(bindparam("session_ids", type_=_TEXTS), bindparam("reasons", type_=_TEXTS))

# As by a sweep: for some time no sweep adds a copy of the message that is published next.
NOTE_ENQUEUED = text("""
    update mneme.sessions set enqueued_at = clock_timestamp()
     where id in (select id from mneme.sessions where id = any (:session_ids) order by id for no key update skip locked)
""").bindparams(bindparam("session_ids", type_=_TEXTS))

# What the broker did not take after all is the sweep's at once.
FORGET_ENQUEUED = text("""
    update mneme.sessions set enqueued_at = null
     where id in (select id from mneme.sessions where id = any (:session_ids) order by id for no key update skip locked)
""").bindparams(bindparam("session_ids", type_=_TEXTS))

PROBE_NOW = text("""
    update mneme.breakers set held_until = clock_timestamp(), changed_at = clock_timestamp()
     where held_until is not null
""")
