"""The SQL of redoing: which extracts stand in place of a model's answer, and putting the answer in their place."""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, UUID

from models.sql import ALL_PAUSED, CAPPED, JOIN_BREAKER, NODE_COLUMNS, PROBE_RUNS, PROBING

_UUIDS = ARRAY(UUID(as_uuid=True))

DEGRADED = "n.degraded and n.retired_at is null and n.superseded_by is null"

# Oldest first. After an attempt a node is left alone for an hour, after each further one for twice as long, up to a day; when
# somebody asks for :every one, only what is being redone just now is left out.
TO_REDO = text(f"""
    select n.id, n.session_id
      from mneme.summary_nodes n
     cross join lateral (
        select count(*) as attempts, max(coalesce(r.finished_at, r.started_at)) as last,
               coalesce(bool_or(r.state = 'running' and r.lease_expires_at >= clock_timestamp()), false) as running
          from mneme.compaction_runs r where r.repairs = n.id) as tried
     where {DEGRADED} and (cast(:session_id as text) is null or n.session_id = :session_id) and not tried.running
       and (:every or tried.attempts = 0
            or tried.last < clock_timestamp()
                            - make_interval(secs => least(86400, 3600 * power(2, least(tried.attempts - 1, 5)))))
       and not n.id = any (:but)
     order by n.created_at, n.id limit :most
""").bindparams(bindparam("session_id", type_=TEXT), bindparam("but", type_=_UUIDS))

# By what the servers say; where one says nothing, by what its model was shown.
SPENT_TODAY = text("""
    select coalesce(sum(greatest(r.prompt_tokens + r.completion_tokens, r.llm_calls * (
               select coalesce(sum(n.token_count), 0) from mneme.summary_nodes n where n.id = any (r.input_ids)))), 0)::bigint
      from mneme.compaction_runs r
     where r.repairs is not null and r.started_at > clock_timestamp() - interval '24 hours'
""")

INSERT_REPAIR = text("""
    insert into mneme.compaction_runs (session_id, level, lease_expires_at, worker, base_url, model, repairs)
    select n.session_id, n.level, clock_timestamp() + make_interval(secs => :lease_seconds), :worker, :base_url, :model, n.id
      from mneme.summary_nodes n where n.id = :node_id
    on conflict (session_id, level) where state = 'running' do nothing
    returning id, session_id, level
""")

# In a statement of its own, after the run is in: what an earlier repair committed meanwhile is seen.
READ_REPAIR = text(f"""
    select {DEGRADED} as degraded, s.paused_at is not null or {ALL_PAUSED} as paused, {PROBING} as probing,
           coalesce(b.held_until > clock_timestamp() or {PROBE_RUNS}, false) or {CAPPED} is not null as held
      from mneme.summary_nodes n join mneme.sessions s on s.id = n.session_id
      {JOIN_BREAKER}
     where n.id = :node_id
""")

PARENTS = text(f"""
    select {NODE_COLUMNS} from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where n.superseded_by = :node_id
     order by n.span_start, n.span_end, n.id
""")

STILL_DEGRADED = text(f"select exists (select from mneme.summary_nodes n where n.id = :node_id and {DEGRADED})")

MOVE_PARENTS = text("""
    update mneme.summary_nodes set superseded_by = :by where id = any (:node_ids) and superseded_by = :node_id
""").bindparams(bindparam("node_ids", type_=_UUIDS))

REPLACE = text("""
    update mneme.summary_nodes
       set retired_at = clock_timestamp(), retired_reason = 'replaced', replaced_by = :by,
           swept_at = coalesce(swept_at, clock_timestamp())
     where id = :node_id and retired_at is null and superseded_by is null
""")
