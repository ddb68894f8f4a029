"""The SQL of steering: pausing, resuming, taking a run away from its worker."""

from sqlalchemy import text

PAUSE = text("update mneme.sessions set paused_at = coalesce(paused_at, clock_timestamp()) where id = :session_id")
RESUME = text("""
    update mneme.sessions s set paused_at = null
      from (select id, paused_at from mneme.sessions where id = :session_id for no key update) as before
     where s.id = before.id returning before.paused_at is not null as was_paused
""")

PAUSE_ALL = text("update mneme.service_state set paused_at = coalesce(paused_at, clock_timestamp())")
RESUME_ALL = text("""
    update mneme.service_state v set paused_at = null
      from (select paused_at from mneme.service_state for no key update) as before
    returning before.paused_at is not null as was_paused
""")

# By its own index; a session is paused by somebody's hand, so there are few.
PAUSED_SESSIONS = text(
    "select id, paused_at from mneme.sessions where paused_at is not null order by paused_at limit :most"
)

# Its id is the token that a commit must still hold.
CANCEL = text("""
    update mneme.compaction_runs set state = 'cancelled', finished_at = clock_timestamp()
     where session_id = :session_id and state = 'running' returning id, level, worker
""")
