"""The SQL of the metrics: what ended since the last time they were read."""

from sqlalchemy import text

# By an index on the time, so its cost grows with what ended since then. The newest seconds are left to the next time: a
# transaction that ended a run may still be on its way.
ENDED = text("""
    select state, coalesce(error_kind, '') as kind, repairs is not null as repair, count(*) as runs,
           sum(llm_calls)::bigint as llm_calls, sum(prompt_tokens)::bigint as prompt_tokens,
           sum(completion_tokens)::bigint as completion_tokens,
           array_agg(extract(epoch from finished_at - started_at)::float8) as seconds
      from mneme.compaction_runs
     where finished_at > :after and finished_at <= :until group by 1, 2, 3
""")

UNTIL = text("select clock_timestamp() - make_interval(secs => :lag_seconds)")
