"""The SQL of which workers are there."""

from sqlalchemy import text

NOTE_WORKER = text("""
    insert into mneme.workers (name, release, slots) values (:name, :release, :slots)
    on conflict (name) do update set seen_at = clock_timestamp(), release = excluded.release, slots = excluded.slots
""")

FORGET_WORKER = text("delete from mneme.workers where name = :name")

# A worker that was killed is told of for so long.
FORGET_GONE = text("delete from mneme.workers where seen_at < clock_timestamp() - make_interval(secs => :seconds)")

WORKERS = text("""
    select name, release, slots, extract(epoch from clock_timestamp() - seen_at)::float8 as seen_seconds
      from mneme.workers order by seen_at desc, name limit 1000
""")
