-- A breaker for each server and model: when it does not answer at all, the calls of the whole fleet are put on hold
-- instead of one failing call for each session. A row exists only while something is wrong.
create table mneme.breakers (
    base_url          text not null,
    model             text not null,
    failures          integer not null default 0 check (failures >= 0),  -- in a row, each of another session than the last
    last_session_id   text,
    openings          integer not null default 0 check (openings >= 0),  -- in a row
    held_until        timestamptz,                                       -- null: not open
    probe_run_id      uuid,                                              -- the run let through once the time is up
    error             text,
    changed_at        timestamptz not null default clock_timestamp(),
    primary key (base_url, model)
);

-- For the status and for `mneme retry`: what was given up, without a look at what was not.
create index summary_nodes_dismissed on mneme.summary_nodes (dismissed_reason, dismissed_at, id)
    where dismissed_at is not null and retired_at is null;
