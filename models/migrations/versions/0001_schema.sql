-- The schema of mneme: see "Storage" in docs/storage.md for what each column means.
-- Statements run in one transaction. Names are qualified throughout, so no search_path matters.

-- ---------------------------------------------------------------------------------------------- text

-- Twins of models/text.py: the same results on both sides, or a check made in one place fails in the other.

create function mneme.estimate_tokens(content text) returns integer
language sql immutable strict parallel safe
return ceil((23 * char_length(content)::numeric
             + 33 * (octet_length(content) - char_length(content))::numeric) / 100)::integer;

create function mneme.is_blank(content text) returns boolean
language sql immutable strict parallel safe
return content !~ '[^\t\n\v\f\r\u001c-\u0020\u0085\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]';

-- -------------------------------------------------------------------------------------------- tables

create table mneme.sessions (
    id           text primary key check (octet_length(id) between 1 and 255),
    created_at   timestamptz not null default clock_timestamp(),
    enqueued_at  timestamptz,
    paused_at    timestamptz,
    metadata     jsonb not null default '{}'
);

create table mneme.messages (
    id          uuid primary key default gen_random_uuid(),
    session_id  text not null references mneme.sessions (id),
    seq         bigint,
    role        text not null,
    is_summary  boolean not null default false,
    model       text,
    created_at  timestamptz not null default clock_timestamp(),
    unique (session_id, seq),
    constraint messages_seq_null_exactly_for_summaries check ((seq is null) = is_summary)
);

create table mneme.message_parts (
    id              uuid primary key default gen_random_uuid(),
    message_id      uuid not null references mneme.messages (id),
    part_index      integer not null check (part_index >= 0),
    part_type       text not null check (part_type in ('text', 'tool', 'compaction')),
    content         text not null,
    token_estimate  integer not null check (token_estimate >= 0),  -- filled by a trigger where left out
    unique (message_id, part_index)
);

create table mneme.summary_nodes (
    id                uuid primary key references mneme.messages (id),
    session_id        text not null references mneme.sessions (id),
    level             integer not null check (level >= 1),
    kind              text not null generated always as (case when level = 1 then 'leaf' else 'condensed' end) stored,
    span_start        bigint not null,
    span_end          bigint not null,
    started_at        timestamptz,
    ended_at          timestamptz,
    token_count       integer not null check (token_count >= 0),
    reported_tokens   integer check (reported_tokens >= 0),
    superseded_by     uuid,
    superseded        boolean not null generated always as (superseded_by is not null) stored,
    dismissed_at      timestamptz,
    dismissed_reason  text check (dismissed_reason in ('declined', 'crashes', 'too_large', 'content', 'restored')),
    retired_at        timestamptz,
    retired_reason    text check (retired_reason in ('restored', 'replaced')),
    replaced_by       uuid references mneme.summary_nodes (id),
    swept_at          timestamptz,
    compaction_level  smallint not null default 1 check (compaction_level between 1 and 3),
    degraded          boolean not null default false,
    model             text,
    prompt_version    text,
    run_id            uuid,
    created_at        timestamptz not null default clock_timestamp(),
    constraint summary_nodes_span_in_order check (span_start <= span_end and span_end < 9223372036854775807),
    constraint summary_nodes_times_in_order check (started_at <= ended_at),
    -- What a program can read back whatever its time zone: no infinity, no year that only Postgres knows.
    constraint summary_nodes_times_readable check (started_at >= '0002-01-01 00:00+00' and started_at < '9999-01-01 00:00+00'
        and ended_at >= '0002-01-01 00:00+00' and ended_at < '9999-01-01 00:00+00'),
    constraint summary_nodes_dismissed_with_reason check ((dismissed_at is null) = (dismissed_reason is null)),
    constraint summary_nodes_retired_with_reason check ((retired_at is null) = (retired_reason is null)),
    constraint summary_nodes_replaced_only_when_retired check (replaced_by is null or retired_reason = 'replaced'),
    -- A successor takes the place of what was dismissed, and what is retired has no place to give up.
    constraint summary_nodes_superseded_alone check (superseded_by is null or (dismissed_at is null and retired_at is null)),
    constraint summary_nodes_degraded_is_extract check (not degraded or compaction_level = 3)
);

create table mneme.summary_edges (
    node_id    uuid not null references mneme.summary_nodes (id),
    parent_id  uuid not null references mneme.summary_nodes (id),
    ordinal    integer not null check (ordinal >= 0),
    primary key (node_id, parent_id),
    unique (node_id, ordinal)
);

-- A node is superseded only by a node that was made from it.
alter table mneme.summary_nodes add constraint summary_nodes_successor_was_made_from_it
    foreign key (superseded_by, id) references mneme.summary_edges (node_id, parent_id);

create table mneme.compaction_runs (
    id                 uuid primary key default gen_random_uuid(),
    session_id         text not null references mneme.sessions (id),
    level              integer not null check (level >= 2),
    state              text not null default 'running' check (state in
                           ('running', 'succeeded', 'declined', 'failed', 'expired', 'cancelled', 'released')),
    attempt            integer not null default 1 check (attempt >= 1),
    content_failures   integer not null default 0 check (content_failures >= 0),
    crashes            integer not null default 0 check (crashes >= 0),
    lease_expires_at   timestamptz not null,
    retry_at           timestamptz,
    input_ids          uuid[] not null default '{}',
    node_id            uuid references mneme.summary_nodes (id),
    model              text,
    llm_calls          integer not null default 0,
    prompt_tokens      bigint not null default 0,
    completion_tokens  bigint not null default 0,
    error_kind         text,
    error              text,
    worker             text,
    started_at         timestamptz not null default clock_timestamp(),
    finished_at        timestamptz,
    constraint compaction_runs_finished_unless_running check ((finished_at is null) = (state = 'running')),
    constraint compaction_runs_node_when_succeeded check ((node_id is not null) = (state = 'succeeded')),
    constraint compaction_runs_no_retry_while_running check (retry_at is null or state <> 'running')
);

alter table mneme.summary_nodes add constraint summary_nodes_run
    foreign key (run_id) references mneme.compaction_runs (id);

-- What the sweep's count of everything last saw; one row.
create table mneme.sweep_state (
    only_row         boolean primary key default true check (only_row),
    full_counted_at  timestamptz,
    threshold        integer,
    max_level        integer
);
insert into mneme.sweep_state default values;

-- ------------------------------------------------------------------------------------------- indexes

create unique index summary_nodes_one_leaf_per_span on mneme.summary_nodes (session_id, span_start, span_end)
    where level = 1 and retired_at is null;
create index summary_nodes_uncovered on mneme.summary_nodes (session_id, level, span_start, span_end, id)
    where superseded_by is null and dismissed_at is null and retired_at is null and not degraded;
create index summary_nodes_declined on mneme.summary_nodes (session_id, level, span_start, span_end, id)
    where superseded_by is null and retired_at is null and dismissed_reason = 'declined';
create index summary_nodes_active on mneme.summary_nodes (session_id, span_start, span_end, id)
    where superseded_by is null and retired_at is null;
create index summary_nodes_latest on mneme.summary_nodes (session_id, created_at, id)
    where superseded_by is null and retired_at is null;
create index summary_nodes_unswept on mneme.summary_nodes (created_at, id) where swept_at is null;
create index summary_nodes_by_successor on mneme.summary_nodes (superseded_by) where superseded_by is not null;
create index summary_edges_by_parent on mneme.summary_edges (parent_id);
create unique index compaction_runs_one_running on mneme.compaction_runs (session_id, level) where state = 'running';
create index compaction_runs_leases on mneme.compaction_runs (lease_expires_at) where state = 'running';
create index compaction_runs_newest on mneme.compaction_runs (session_id, level, started_at, id);
create index compaction_runs_retry on mneme.compaction_runs (retry_at) where retry_at is not null;

-- ------------------------------------------------------------------------------------------ triggers

create function mneme.refuse_update() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    raise exception 'mneme: rows of % are never changed', tg_table_name using errcode = 'object_not_in_prerequisite_state';
end $$;

create trigger messages_append_only before update on mneme.messages for each row execute function mneme.refuse_update();
create trigger parts_append_only before update on mneme.message_parts for each row execute function mneme.refuse_update();
create trigger edges_immutable before update on mneme.summary_edges for each row execute function mneme.refuse_update();

-- With the owner's rights: a main app's role that may append messages need not execute the functions used here.
create function mneme.check_part() returns trigger
language plpgsql security definer set search_path = mneme, pg_temp as $$
begin
    new.token_estimate := coalesce(new.token_estimate, mneme.estimate_tokens(new.content));
    if exists (select from mneme.messages m where m.id = new.message_id and m.is_summary) then
        if (new.part_index, new.part_type) not in ((0, 'text'), (1, 'compaction')) then
            raise exception 'mneme: summary % has a text and a compaction part and no other', new.message_id
                using errcode = 'invalid_parameter_value';
        elsif new.part_type = 'text' and (mneme.is_blank(new.content) or octet_length(new.content) > 32768) then
            raise exception 'mneme: the text of summary % must be visible and at most 32768 bytes', new.message_id
                using errcode = 'invalid_parameter_value';
        end if;
    end if;
    return new;
end $$;

create trigger parts_checked before insert on mneme.message_parts for each row execute function mneme.check_part();

create function mneme.check_node() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    if not exists (select from mneme.messages m
                   where m.id = new.id and m.session_id = new.session_id and m.is_summary) then
        raise exception 'mneme: node % needs a summary message of its session with the same id', new.id
            using errcode = 'foreign_key_violation';
    end if;
    return new;
end $$;

create trigger nodes_checked before insert or update of id, session_id on mneme.summary_nodes
    for each row execute function mneme.check_node();

create function mneme.check_edge() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    if not exists (select from mneme.summary_nodes n join mneme.summary_nodes p
                   on p.session_id = n.session_id and p.level = n.level - 1
                   where n.id = new.node_id and p.id = new.parent_id) then
        raise exception 'mneme: parent % of node % must be of the same session and one level below',
            new.parent_id, new.node_id using errcode = 'foreign_key_violation';
    end if;
    return new;
end $$;

create trigger edges_checked before insert on mneme.summary_edges for each row execute function mneme.check_edge();

create function mneme.check_successor() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    -- The lock makes retiring a node and naming it as a successor wait for each other.
    perform from mneme.summary_nodes where id = new.superseded_by and retired_at is null for share;
    if not found then
        raise exception 'mneme: node % is retired and cannot supersede node %', new.superseded_by, new.id
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    return new;
end $$;

create trigger nodes_successor_checked before update of superseded_by on mneme.summary_nodes
    for each row when (new.superseded_by is not null) execute function mneme.check_successor();

create function mneme.check_retired() returns trigger
language plpgsql set search_path = mneme, pg_temp as $$
begin
    if exists (select from mneme.summary_nodes where superseded_by = new.id) then
        raise exception 'mneme: node % still supersedes others and cannot be retired', new.id
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    return new;
end $$;

create trigger nodes_retired_checked before update of retired_at on mneme.summary_nodes
    for each row when (new.retired_at is not null) execute function mneme.check_retired();

-- ------------------------------------------------------------------------------------- writing a node

-- The one way in which a node comes into being: message, text part, compaction part, node, edges.
-- Everything it refuses is refused before the first row is written.
create function mneme.insert_summary_node(
    p_id uuid, p_session_id text, p_level integer, p_span_start bigint, p_span_end bigint, p_content text,
    p_started_at timestamptz default null, p_ended_at timestamptz default null, p_reported_tokens integer default null,
    p_parent_ids uuid[] default '{}', p_compaction_level integer default 1, p_degraded boolean default false,
    p_model text default null, p_prompt_version text default null, p_run_id uuid default null)
returns uuid
language plpgsql set search_path = mneme, pg_temp as $$
declare
    node_id uuid := coalesce(p_id, gen_random_uuid());
    who     text := format('mneme: session %L, level %s, messages %s to %s: ',
                           left(p_session_id, 255), p_level, p_span_start, p_span_end);
    problem text;
    hull    record;
begin
    problem := case
        when p_session_id is null or octet_length(p_session_id) not between 1 and 255
            then 'the session id must have 1 to 255 bytes'
        when p_level is null or p_level < 1 then 'the level must be 1 or more'
        when p_span_start is null or p_span_end is null then 'span_start and span_end must be given'
        when p_span_start > p_span_end then 'the span is reversed: span_start must not be greater than span_end'
        when p_span_end = 9223372036854775807 then 'span_end is too large'
        when p_content is null or mneme.is_blank(p_content) then 'the content is blank'
        when octet_length(p_content) > 32768
            then format('the content has %s bytes, at most 32768 are allowed', octet_length(p_content))
        when p_started_at > p_ended_at then 'the times are reversed: started_at must not be later than ended_at'
        when p_started_at < '0002-01-01 00:00+00' or p_started_at >= '9999-01-01 00:00+00'
          or p_ended_at < '0002-01-01 00:00+00' or p_ended_at >= '9999-01-01 00:00+00'
            then 'started_at and ended_at must lie between the years 2 and 9998'
        when p_reported_tokens < 0 then 'token_count must not be negative'
        when p_level = 1 and cardinality(p_parent_ids) > 0 then 'a level 1 node has no parents'
        when p_level > 1 and coalesce(cardinality(p_parent_ids), 0) = 0 then 'a node above level 1 needs parents'
    end;
    if problem is null and p_level > 1 then
        select count(*) as found, min(span_start) as span_start, max(span_end) as span_end,
               min(started_at) as started_at, max(ended_at) as ended_at
          into hull from mneme.summary_nodes
         where id = any (p_parent_ids) and session_id = p_session_id and level = p_level - 1 and retired_at is null;
        problem := case
            when hull.found <> cardinality(p_parent_ids)
                then 'each parent must exist, once, in the same session and one level below, and not be retired'
            when (p_span_start, p_span_end) <> (hull.span_start, hull.span_end)
                then format('the span must be that of the parents together, %s to %s', hull.span_start, hull.span_end)
            when coalesce(p_started_at, hull.started_at) is distinct from hull.started_at
              or coalesce(p_ended_at, hull.ended_at) is distinct from hull.ended_at
                then 'started_at and ended_at must be those of the parents together'
        end;
        p_started_at := hull.started_at;
        p_ended_at := hull.ended_at;
    end if;
    if problem is not null then
        raise exception '%', who || problem using errcode = 'invalid_parameter_value';
    end if;

    insert into mneme.sessions (id) values (p_session_id) on conflict do nothing;
    insert into mneme.messages (id, session_id, role, is_summary, model)
        values (node_id, p_session_id, 'assistant', true, p_model);
    insert into mneme.summary_nodes (id, session_id, level, span_start, span_end, started_at, ended_at, token_count,
                                     reported_tokens, compaction_level, degraded, model, prompt_version, run_id)
        values (node_id, p_session_id, p_level, p_span_start, p_span_end, p_started_at, p_ended_at,
                mneme.estimate_tokens(p_content), p_reported_tokens, p_compaction_level, p_degraded, p_model,
                p_prompt_version, p_run_id);
    insert into mneme.summary_edges (node_id, parent_id, ordinal)
        select node_id, parent_id, position - 1 from unnest(p_parent_ids) with ordinality as given (parent_id, position);
    insert into mneme.message_parts (message_id, part_index, part_type, content)
        values (node_id, 0, 'text', p_content),
               (node_id, 1, 'compaction', mneme.compaction_part(node_id, p_level, p_span_start, p_span_end, p_parent_ids));
    return node_id;
end $$;

-- What stands in the compaction part. How many tokens a level 1 node replaced only the main app knows: null.
create function mneme.compaction_part(
    p_node_id uuid, p_level integer, p_span_start bigint, p_span_end bigint, p_parent_ids uuid[])
returns text
language sql stable set search_path = mneme, pg_temp as $$
    select jsonb_build_object(
        'summary_node_id', p_node_id, 'level', p_level,
        'compacted_message_count', case when p_level = 1 then p_span_end::numeric - p_span_start + 1 else
            (select sum((content::jsonb ->> 'compacted_message_count')::numeric) from mneme.message_parts
              where message_id = any (p_parent_ids) and part_index = 1) end,
        'compacted_token_count', case when p_level > 1 then
            (select sum(token_count) from mneme.summary_nodes where id = any (p_parent_ids)) end)::text
$$;

create function mneme.write_l1_snapshot(
    session_id text, span_start bigint, span_end bigint, content text,
    started_at timestamptz default null, ended_at timestamptz default null, token_count integer default null)
returns uuid
language plpgsql security definer set search_path = mneme, pg_temp as $$
#variable_conflict use_column
declare
    existing record;
begin
    for try in 1..2 loop
        select n.id, p.content = write_l1_snapshot.content as same into existing
          from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
         where write_l1_snapshot.content is not null
           and n.session_id = write_l1_snapshot.session_id and n.level = 1 and n.retired_at is null
           and n.span_start = write_l1_snapshot.span_start and n.span_end = write_l1_snapshot.span_end;
        if existing.same then
            return existing.id;
        elsif existing.id is not null then
            raise exception 'mneme: session %: messages % to % are already covered by snapshot % with other content',
                quote_literal(session_id), span_start, span_end, existing.id using errcode = 'unique_violation';
        end if;
        begin
            return mneme.insert_summary_node(null, session_id, 1, span_start, span_end, content,
                                             started_at, ended_at, token_count);
        exception when unique_violation then
            null;  -- another writer was faster; look again
        end;
    end loop;
    -- Only under repeatable read: the other writer's row exists and cannot be seen.
    raise exception 'mneme: session %: messages % to % are being written by another transaction; try again',
        quote_literal(session_id), span_start, span_end using errcode = 'serialization_failure';
end $$;

-- --------------------------------------------------------------------------------------------- reading

create view mneme.active_summary_nodes as
    select n.id, n.session_id, n.level, n.kind, n.span_start, n.span_end, n.started_at, n.ended_at, p.content,
           n.token_count, n.reported_tokens, n.dismissed_at, n.dismissed_reason, n.compaction_level, n.degraded,
           n.model, n.prompt_version, n.created_at
      from mneme.summary_nodes n
      join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where n.superseded_by is null and n.retired_at is null;

-- What an agent should carry: long-term memory (level 2 and up) and recent memory (level 1), each within its share of
-- the budget, filled from the newest back, and told in the order of the conversation. The newest node of each is always
-- there, and no node is cut. Costs are those of the text as it is returned, headings and all.
create function mneme.memory(
    session_id text, token_budget integer,
    l1_budget_fraction double precision default 0.15, l2_budget_fraction double precision default 0.05)
returns text
language plpgsql stable security definer set search_path = mneme, pg_temp as $$
#variable_conflict use_column
declare
    told text;
begin
    if memory.token_budget is null or memory.token_budget < 0 then
        raise exception 'mneme: the token budget must be 0 or more' using errcode = 'invalid_parameter_value';
    end if;
    with active as (
        select n.id, n.level > 1 as long_term, n.span_start, n.span_end,
               format(e'[%s%s, messages %s to %s, node %s]\n',
                      coalesce(to_char(n.started_at at time zone 'UTC', 'YYYY-MM-DD'), 'date unknown'),
                      coalesce(' to ' || nullif(to_char(n.ended_at at time zone 'UTC', 'YYYY-MM-DD'),
                                                to_char(n.started_at at time zone 'UTC', 'YYYY-MM-DD')), ''),
                      n.span_start, n.span_end, n.id) as head,
               n.token_count
          from mneme.summary_nodes n
         where n.session_id = memory.session_id and n.superseded_by is null and n.retired_at is null),
    measured as (
        select *, row_number() over newest as age,
               -- Two tokens for the blank lines around a node, ten for the heading of its part.
               10 + sum(token_count + mneme.estimate_tokens(head) + 2) over newest as cost
          from active window newest as (partition by long_term order by span_start desc, span_end desc, id desc)),
    chosen as (
        select m.long_term, m.span_start, m.span_end, m.id, m.head || p.content as entry
          from measured m join mneme.message_parts p on p.message_id = m.id and p.part_index = 0
         where m.age = 1 or m.cost <= memory.token_budget
               * case when m.long_term then memory.l2_budget_fraction else memory.l1_budget_fraction end),
    parts as (
        select long_term, string_agg(entry, e'\n\n' order by span_start, span_end, id) as entries
          from chosen group by long_term)
    select string_agg(case when long_term then e'# Long-term memory\n\n' else e'# Recent memory\n\n' end || entries,
                      e'\n\n' order by long_term desc) into told from parts;
    return coalesce(told, '');
end $$;

-- ---------------------------------------------------------------------------------------------- rights

-- Postgres lets everybody execute a new function; "mneme grant ROLE" gives a main app's role what it needs.
revoke all on all functions in schema mneme from public;
