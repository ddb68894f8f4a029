-- What failed by its settings and waits for them to be mended: the first sound answer looks for it.
create index compaction_runs_misconfigured on mneme.compaction_runs (retry_at)
    where retry_at is not null and error_kind = 'configuration';

-- `mneme retry --all` goes through the sessions in the order of their ids.
create index compaction_runs_waiting on mneme.compaction_runs (session_id) where retry_at is not null;
create index summary_nodes_given_up on mneme.summary_nodes (session_id)
    where dismissed_at is not null and retired_at is null and dismissed_reason in ('crashes', 'too_large', 'content');

-- When anything was folded last, and what the last hour cost.
create index compaction_runs_finished on mneme.compaction_runs (finished_at) where finished_at is not null;

-- Whose answer a run waited for: a failure by the settings is not held against another server. Null before this release.
alter table mneme.compaction_runs add column base_url text;
