"""The SQL of upkeep: forgetting old runs, and noting what the doctor found."""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, UUID

# A page of what may be old enough, from where the last one ended: runs that must stay are passed once a round, not once a page.
OLD_RUNS = text("""
    select id, finished_at from mneme.compaction_runs
     where node_id is null and finished_at < statement_timestamp() - make_interval(secs => :seconds)
       and (finished_at, id) > (coalesce(cast(:after_at as timestamptz), '-infinity'), :after_id)
     order by finished_at, id limit :most
""")

# Never the newest of a session and level, which is its state, nor one that is to be tried again. What somebody has locked is
# left for the next time.
FORGET_RUNS = text("""
    delete from mneme.compaction_runs
     where id in (select r.id from mneme.compaction_runs r
                   where r.id = any (:run_ids) and r.node_id is null and r.retry_at is null
                     and exists (select from mneme.compaction_runs n
                                  where n.session_id = r.session_id and n.level = r.level and n.repairs is null
                                    and (n.started_at, n.id) > (r.started_at, r.id))
                     and not exists (select from mneme.summary_nodes n where n.run_id = r.id)
                   order by r.id for update skip locked)
""").bindparams(bindparam("run_ids", type_=ARRAY(UUID(as_uuid=True))))

# Two beats send for it twice; one examination is enough.
TAKE_EXAMINATION = text("""
    update mneme.service_state set examining_at = clock_timestamp()
     where examining_at is null or examining_at < clock_timestamp() - make_interval(secs => :seconds / 2)
    returning true
""")

NOTE_EXAMINATION = text("""
    update mneme.service_state
       set examined_at = clock_timestamp(), broken_rules = :broken_rules, violations = :violations
""").bindparams(bindparam("broken_rules", type_=ARRAY(TEXT)))
