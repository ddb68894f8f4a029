"""The SQL of looking at a session: what is active, what lies under a node, one with all that belongs to it, every node."""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, UUID

_UUIDS = ARRAY(UUID(as_uuid=True))

# Times as text, in UTC whatever the connection's time zone is: the caller may own the transaction.
_TREE_COLUMNS = """
    n.id, n.level, n.span_start, n.span_end, n.token_count, n.degraded, n.dismissed_reason,
    to_char(n.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as started_at,
    to_char(n.ended_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as ended_at,
    (select count(*) from mneme.summary_edges b where b.node_id = n.id) as parent_count,
    case when :with_text then (select left(p.content, 200) from mneme.message_parts p
                                where p.message_id = n.id and p.part_index = 0) end as opening"""

# By the session's summary messages: the one index that leads to every node of a session and to no other.
TREE_TOTALS = text("""
    select s.id,
           count(*) filter (where n.level = 1 and n.retired_at is null) as snapshots,
           count(*) filter (where n.level > 1 and n.retired_at is null) as folds,
           count(*) filter (where n.level >= :level and n.superseded_by is null and n.retired_at is null) as roots,
           coalesce(sum(n.token_count) filter (where n.superseded_by is null and n.retired_at is null), 0) as active_tokens,
           coalesce(sum(n.token_count) filter (where n.level = 1 and n.retired_at is null), 0) as snapshot_tokens
      from mneme.sessions s
      left join mneme.messages m on m.session_id = s.id and m.seq is null
      left join mneme.summary_nodes n on n.id = m.id
     where s.id = :session_id group by s.id
""")

TREE_ROOTS = text(f"""
    select {_TREE_COLUMNS} from mneme.summary_nodes n
     where n.session_id = :session_id and n.superseded_by is null and n.retired_at is null and n.level >= :level
     order by n.span_start desc, n.span_end desc, n.id desc limit :most
""")

TREE_PARENTS = text(f"""
    select e.node_id as child_id, {_TREE_COLUMNS}
      from mneme.summary_edges e join mneme.summary_nodes n on n.id = e.parent_id
     where e.node_id = any (:node_ids)
     order by e.node_id, e.ordinal
""").bindparams(bindparam("node_ids", type_=_UUIDS))

# By its id or how that begins: one range of the primary key.
NODES_BY_ID = text("select id from mneme.summary_nodes where id between :first and :last order by id limit :most")

_RELATIVE = """
    n.id, n.level, n.span_start, n.span_end, n.token_count,
    case when n.retired_at is not null then n.retired_reason
         when n.superseded_by is not null then 'superseded'
         when n.dismissed_reason is not null then n.dismissed_reason
         else 'active' end as state,
    (select count(*) from mneme.summary_edges b where b.node_id = n.id) as parent_count"""

PARENTS = text(f"""
    select {_RELATIVE} from mneme.summary_edges e join mneme.summary_nodes n on n.id = e.parent_id
     where e.node_id = :node_id order by e.ordinal
""")

# From the node up to what is active now. At most as many steps as there are levels, should somebody have made a circle.
SUCCESSORS = text(f"""
    with recursive above (id, step) as (
        select superseded_by, 1 from mneme.summary_nodes where id = :node_id and superseded_by is not null
        union all
        select u.superseded_by, a.step + 1 from above a join mneme.summary_nodes u on u.id = a.id
         where u.superseded_by is not null and a.step < 16)
    select {_RELATIVE} from above a join mneme.summary_nodes n on n.id = a.id order by a.step
""")

RUN = text("""
    select id, state, attempt, repairs, llm_calls, prompt_tokens, completion_tokens, error_kind, error,
           extract(epoch from finished_at - started_at)::float8 as seconds
      from mneme.compaction_runs where id = :run_id
""")

# Every node of a session with its text and its edges, in one statement: all of it as it was at one moment.
PICTURE_NODES = text("""
    select n.id, n.level, n.span_start, n.span_end, n.token_count, n.reported_tokens, n.superseded_by, n.dismissed_reason,
           n.retired_reason, n.replaced_by, n.degraded, n.compaction_level, n.model, n.prompt_version,
           to_char(n.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as started_at,
           to_char(n.ended_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as ended_at,
           to_char(n.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at,
           to_char(n.dismissed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as dismissed_at,
           to_char(n.retired_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as retired_at,
           coalesce(p.content, '') as content,
           array(select e.parent_id from mneme.summary_edges e where e.node_id = n.id order by e.ordinal) as parent_ids
      from mneme.messages m
      join mneme.summary_nodes n on n.id = m.id
      left join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where m.session_id = :session_id and m.seq is null
     order by n.level, n.span_start, n.span_end, n.created_at, n.id
""")
