"""The SQL of lists for those who look after the service: sessions by how much attention they need, and runs."""

from sqlalchemy import text

from models.sql import HOLD, JOIN_BREAKER, WAITING

# Given up first, then what keeps failing, then what has been due for longest; after these the newest sessions. Its cost grows
# with what waits and what was given up, not with what was folded.
SESSIONS = text(f"""
    with waiting as ({WAITING}),
    lowest as (select distinct on (session_id) * from waiting order by session_id, level),
    due as (
        select w.session_id, w.nodes, w.due_since, coalesce({HOLD}, 'due') as hold,
               case when r.state in ('failed', 'expired') then r.attempt end as attempt, r.error_kind, r.error
          from lowest w join mneme.sessions s on s.id = w.session_id
          left join lateral (
            select * from mneme.compaction_runs c
             where c.session_id = w.session_id and c.level = w.level and (c.repairs is null or c.state = 'running')
             order by c.started_at desc, c.id desc limit 1) as r on true
          {JOIN_BREAKER}),
    given_up as (
        select session_id, count(*) as nodes from mneme.summary_nodes n
         where n.dismissed_at is not null and n.retired_at is null and n.dismissed_reason in ('crashes', 'too_large', 'content')
         group by session_id),
    degraded as (
        select session_id, count(*) as nodes from mneme.summary_nodes n
         where n.degraded and n.retired_at is null and n.superseded_by is null group by session_id),
    troubled as (
        select coalesce(d.session_id, g.session_id, x.session_id) as session_id, d.hold, d.nodes, d.due_since, d.attempt,
               d.error_kind, d.error, g.nodes as given_up, x.nodes as degraded
          from due d full join given_up g on g.session_id = d.session_id
          full join degraded x on x.session_id = coalesce(d.session_id, g.session_id)
         order by g.nodes desc nulls last, d.attempt desc nulls last, d.due_since nulls last, 1 limit :most),
    others as (
        select s.id as session_id from mneme.sessions s
         where not exists (select from troubled t where t.session_id = s.id)
         order by s.created_at desc, s.id limit greatest(0, :most - (select count(*) from troubled)))
    select s.id as session_id, s.paused_at is not null as paused, coalesce(t.hold, 'settled') as state,
           coalesce(t.nodes, 0) as waiting, extract(epoch from clock_timestamp() - t.due_since)::float8 as due_seconds,
           t.attempt, t.error_kind, t.error, coalesce(t.given_up, 0) as given_up, coalesce(t.degraded, 0) as degraded,
           (select max(n.created_at) from mneme.summary_nodes n
             where n.session_id = s.id and n.superseded_by is null and n.retired_at is null) as written_at
      from (select session_id, hold, nodes, due_since, attempt, error_kind, error, given_up, degraded, 1 as part from troubled
            union all
            select session_id, null, null, null, null, null, null, null, null, 2 from others) as t
      join mneme.sessions s on s.id = t.session_id
     order by t.part, t.given_up desc nulls last, t.attempt desc nulls last, t.due_since nulls last, s.created_at desc, s.id
""")

_RUN = """
    r.id, r.session_id, r.level, r.state, r.attempt, r.repairs, cardinality(r.input_ids) as nodes, r.node_id, r.model,
    r.llm_calls, r.prompt_tokens, r.completion_tokens, r.error_kind, r.error, r.worker, r.started_at, r.finished_at,
    extract(epoch from coalesce(r.finished_at, clock_timestamp()) - r.started_at)::float8 as seconds,
    extract(epoch from r.retry_at - clock_timestamp())::float8 as retry_seconds"""

RUNS_OF_SESSION = text(f"""
    select {_RUN} from mneme.compaction_runs r where r.session_id = :session_id
     order by r.started_at desc, r.id desc limit :most
""")

# Those under way, then those that ended last: each by an index.
RUNS = text(f"""
    select * from (
        (select {_RUN} from mneme.compaction_runs r where r.state = 'running' order by r.started_at desc limit :most)
        union all
        (select {_RUN} from mneme.compaction_runs r where r.finished_at is not null order by r.finished_at desc limit :most)
    ) as found order by finished_at desc nulls first, started_at desc limit :most
""")

# Every session with enough to fold at some level, the one that became due first, first. Held or not: a claim knows that better.
DUE_SESSIONS = text(f"""
    select session_id from ({WAITING}) as waiting
     group by session_id order by min(due_since), session_id
""")
