-- What the service knows of itself; one row. Paused: nothing is claimed, in any session, until it is resumed. A sweep is sent by
-- beat through the broker to a worker, so its time says whether all three are alive.
create table mneme.service_state (
    only_row       boolean primary key default true check (only_row),
    paused_at      timestamptz,
    swept_at       timestamptz,
    swept_by       text,
    rescued        bigint not null default 0,                               -- sessions that sweeps found and no message had told of
    examining_at   timestamptz,                                             -- when the doctor was last sent for
    examined_at    timestamptz,                                             -- when it last had judged every rule
    broken_rules   text[],
    violations     bigint
);
insert into mneme.service_state default values;

-- Which workers are there. A worker writes its row a few times a minute, and deletes it when it ends; one that was killed leaves it.
create table mneme.workers (
    name           text primary key,
    release        text not null,
    slots          integer not null,
    started_at     timestamptz not null default clock_timestamp(),
    seen_at        timestamptz not null default clock_timestamp()
);

-- What tokens were spent lately, for the caps.
create index compaction_runs_spent on mneme.compaction_runs (finished_at) include (prompt_tokens, completion_tokens)
    where finished_at is not null;
create index compaction_runs_spent_by_session on mneme.compaction_runs (session_id, finished_at)
    include (prompt_tokens, completion_tokens) where finished_at is not null;
drop index mneme.compaction_runs_finished;

-- Runs that made no node are forgotten after a while.
create index compaction_runs_forgettable on mneme.compaction_runs (finished_at) where node_id is null and finished_at is not null;

-- Deleting a run asks whether a node names it.
create index summary_nodes_by_run on mneme.summary_nodes (run_id) where run_id is not null;

-- Sessions that somebody paused.
create index sessions_paused on mneme.sessions (paused_at) where paused_at is not null;
create index sessions_created on mneme.sessions (created_at desc, id);
