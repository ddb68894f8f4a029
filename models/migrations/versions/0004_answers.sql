-- What of the input survived in a summary, and what of the summary stands in no input; null where nobody looked.
-- {"survived": 0..1, "supported": 0..1, "unsupported": n, "secrets": n}
alter table mneme.summary_nodes add column fidelity jsonb;

-- The node that a run is to replace: an extract that stands in place of a model's answer. Null for a fold. Such a run is no
-- state of its session's level: it carries no counters, and is never retried by its own retry_at.
alter table mneme.compaction_runs add column repairs uuid references mneme.summary_nodes (id);
create index compaction_runs_repairs on mneme.compaction_runs (repairs, started_at) where repairs is not null;

-- What waits to be redone, oldest first.
create index summary_nodes_degraded on mneme.summary_nodes (created_at, id)
    where degraded and retired_at is null and superseded_by is null;
