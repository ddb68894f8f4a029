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

-- The sweep marks what waits in a paused session, lest it read that again each time. Whoever resumes the session, by
-- whatever means, lets the sweep look at it again.
create function mneme.unmark_resumed() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    update mneme.summary_nodes set swept_at = null
     where id = (select id from mneme.summary_nodes
                  where session_id = new.id and superseded_by is null and dismissed_at is null and retired_at is null
                    and not degraded
                  order by level, span_start, span_end, id limit 1 for no key update skip locked);
    return null;
end $$;

create trigger sessions_resumed after update of paused_at on mneme.sessions
    for each row when (old.paused_at is not null and new.paused_at is null) execute function mneme.unmark_resumed();
