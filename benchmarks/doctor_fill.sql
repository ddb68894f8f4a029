-- A memory of about 187 nodes a session, folded but for its end, as mneme leaves it: level 1 by fives, level 2 by sevens.
-- Nodes are made in the order of time, so the sessions lie interleaved, and have random ids, as in life.
-- {sessions} is a number.
set local session_replication_role = replica;
set local work_mem = '256MB';

create temporary table made on commit drop as
    select md5(format('%s %s %s', level, k, s))::uuid as id, 's' || s as session_id, s, level, k, parents, is_redone,
           (k * per * 10) + 1 as span_start, (k + 1) * per * 10 as span_end,
           timestamptz '2026-01-01' + make_interval(hours => k * per) as started_at,
           timestamptz '2026-01-01' + make_interval(hours => (k + 1) * per, mins => -5) as ended_at,
           repeat(format(E'Ada decided on day %s to move ticket OPS-%s to Z\u00fcrich. ', k, s), case level when 1 then 15 else 35 end)
               as content,
           case when level = 1 and k < 150 then md5(format('2 %s %s', k / 5, s))::uuid
                when level = 2 and k < 28 and not is_redone then md5(format('3 %s %s', k / 7, s))::uuid end as successor
      from (
        select 1 as level, 1 as per, k, 0 as parents, false as is_redone, s
          from generate_series(0, 152) k, generate_series(1, {sessions}) s
        union all select 2, 5, k, 5, false, s from generate_series(0, 29) k, generate_series(1, {sessions}) s
        union all select 3, 35, k, 7, false, s from generate_series(0, 3) k, generate_series(1, {sessions}) s) as shape
     order by (k + 1) * per, level, s;

-- One fold in fifty sessions was made again: the first attempt is retired, and keeps its edges.
insert into made
    select md5('redone' || s)::uuid, session_id, s, 2, 0, 5, true, span_start, span_end, started_at, ended_at, content, null
      from made where level = 2 and k = 0 and s % 50 = 0;

insert into mneme.sessions (id) select 's' || s from generate_series(1, {sessions}) s;
insert into mneme.messages (id, session_id, role, is_summary) select id, session_id, 'assistant', true from made;
insert into mneme.message_parts (message_id, part_index, part_type, content, token_estimate)
    select id, part_index, case part_index when 0 then 'text' else 'compaction' end,
           case part_index when 0 then content
                else format('{{"level": %s, "summary_node_id": "%s", "compacted_message_count": 10}}', level, id) end, 1
      from made, generate_series(0, 1) part_index;

-- The conversation log, if the app keeps it here: a message for each snapshot.
insert into mneme.messages (id, session_id, seq, role)
    select md5('log' || k || ' ' || s)::uuid, session_id, k, 'user' from made where level = 1;
insert into mneme.message_parts (message_id, part_index, part_type, content, token_estimate)
    select md5('log' || k || ' ' || s)::uuid, 0, 'text', left(content, 200), 1 from made where level = 1;

insert into mneme.compaction_runs (id, session_id, level, lease_expires_at, state, finished_at, input_ids, node_id)
    select md5('run' || id)::uuid, session_id, level, now(), 'succeeded', now(),
           array(select md5(format('%s %s %s', m.level - 1, m.k * parents + j, s))::uuid from generate_series(0, parents - 1) j),
           id from made m where level > 1;
insert into mneme.compaction_runs (session_id, level, lease_expires_at, state, finished_at, error_kind)
    select 's' || s, 2, now(), 'failed', now(), 'transient' from generate_series(1, {sessions}) s;
insert into mneme.compaction_runs (session_id, level, lease_expires_at)
    select 's' || s, 2, now() + interval '5 min' from generate_series(1, {sessions}, 100) s;

insert into mneme.summary_nodes (id, session_id, level, span_start, span_end, started_at, ended_at, token_count, superseded_by,
                                 swept_at, dismissed_at, dismissed_reason, retired_at, retired_reason, replaced_by, run_id)
    select id, session_id, level, span_start, span_end, started_at, ended_at, mneme.estimate_tokens(content), successor, now(),
           case when level = 1 and k = 150 and s % 10 = 0 then now() end,
           case when level = 1 and k = 150 and s % 10 = 0 then 'declined' end,
           case when is_redone then now() end, case when is_redone then 'replaced' end,
           case when is_redone then md5(format('2 0 %s', s))::uuid end,
           case when level > 1 then md5('run' || id)::uuid end
      from made;
insert into mneme.summary_edges (node_id, parent_id, ordinal)
    select id, md5(format('%s %s %s', level - 1, k * parents + j, s))::uuid, j
      from made, generate_series(0, parents - 1) j where level > 1;
