"""The SQL of the doctor: one statement for each rule, which finds what breaks it.

Foreign keys are checked on the data too. In Postgres they are triggers, which a restore with triggers disabled, or
``session_replication_role``, passes by; only checks, unique indexes and generated columns cannot be passed by.

Each statement is a pass or two over what the rule is about, by hash joins, for nearly every row is looked at.
"""

from sqlalchemy import TextClause, text

from models.sql import UNCOVERED

# For the doctor's transaction alone. Hashing a million rows in the 4 MB of Postgres' default goes through files; compiling
# a statement costs more than it saves; and the other cores belong to those who wait for an answer.
PREPARE = text(
    "select set_config('work_mem', '64MB', true), set_config('jit', 'off', true),"
    " set_config('max_parallel_workers_per_gather', '0', true)"
)


def _broken(violators: str) -> TextClause:
    """Return a statement that counts the violators and tells the first ids; a long list stays in a file of Postgres."""
    return text(f"""
        with violators (id) as materialized ({violators})
        select (select count(*) from violators) as violations,
               array(select id::text from (select id from violators order by id limit :most) as first) as first_ids
    """)


# ------------------------------------------------------------------------------------------------ nodes and edges

SUPERSEDED_HAS_SUCCESSOR = _broken("""
    select n.id from mneme.summary_nodes n
     where n.superseded_by is not null
       and not exists (select from mneme.summary_edges e where e.node_id = n.superseded_by and e.parent_id = n.id)
""")

EDGES_JOIN_NODES = _broken("""
    select e.node_id from mneme.summary_edges e
     where not exists (select from mneme.summary_nodes c where c.id = e.node_id)
    union
    select e.node_id from mneme.summary_edges e
     where not exists (select from mneme.summary_nodes p where p.id = e.parent_id)
""")

FOLDED_ONCE = _broken("""
    select distinct c.id
      from mneme.summary_edges e
      join mneme.summary_nodes p on p.id = e.parent_id and p.superseded_by <> e.node_id
      join mneme.summary_nodes c on c.id = e.node_id and c.retired_at is null
""")

PARENTS_ARE_SUPERSEDED = _broken("""
    select distinct p.id
      from mneme.summary_edges e
      join mneme.summary_nodes p on p.id = e.parent_id and p.superseded_by is null
      join mneme.summary_nodes c on c.id = e.node_id and c.retired_at is null
""")

CONDENSED_HAS_PARENTS = _broken("""
    select n.id from mneme.summary_nodes n
     where n.level > 1 and not exists (select from mneme.summary_edges e where e.node_id = n.id)
""")

LEAF_HAS_NO_PARENTS = _broken("""
    select n.id from mneme.summary_nodes n
     where n.level = 1 and exists (select from mneme.summary_edges e where e.node_id = n.id)
""")

RETIRED_SUPERSEDES_NOTHING = _broken("""
    select r.id from mneme.summary_nodes r
     where r.retired_at is not null and exists (select from mneme.summary_nodes n where n.superseded_by = r.id)
""")

PARENTS_ARE_ONE_LEVEL_BELOW = _broken("""
    select distinct c.id
      from mneme.summary_edges e
      join mneme.summary_nodes c on c.id = e.node_id
      join mneme.summary_nodes p on p.id = e.parent_id
     where p.session_id <> c.session_id or p.level <> c.level - 1
""")

# Levels fall along every edge that is as it should be, so a cycle has an edge along which they do not. The search begins
# at those alone. Each pair is reached once, whatever the way, which ends it; the bound is for a table full of nonsense, and
# stands outside, lest the planner take it for a promise that the first thousand are soon found.
NO_CYCLE = _broken("""
    with recursive suspect as materialized (
        select e.node_id, e.parent_id
          from mneme.summary_edges e
          join mneme.summary_nodes c on c.id = e.node_id
          join mneme.summary_nodes p on p.id = e.parent_id
         where p.level >= c.level),
    reached (start, id) as (
        (select node_id, parent_id from suspect order by node_id, parent_id limit 1000)
        union
        select r.start, e.parent_id from reached r join mneme.summary_edges e on e.node_id = r.id where r.id <> r.start)
    select distinct start from reached where id = start
""")

# ------------------------------------------------------------------------------------------------ what a fold says

_HULLS = """
    select e.node_id, min(p.span_start) as span_start, max(p.span_end) as span_end, min(p.started_at) as started_at,
           max(p.ended_at) as ended_at, sum(p.token_count) as tokens, count(*) as parents
      from mneme.summary_edges e join mneme.summary_nodes p on p.id = e.parent_id
     group by e.node_id"""

SPAN_IS_HULL = _broken(f"""
    select n.id from mneme.summary_nodes n join ({_HULLS}) as h on h.node_id = n.id
     where n.level > 1 and (n.span_start <> h.span_start or n.span_end <> h.span_end)
""")

TIMES_ARE_HULL = _broken(f"""
    select n.id from mneme.summary_nodes n join ({_HULLS}) as h on h.node_id = n.id
     where n.level > 1
       and (n.started_at is distinct from h.started_at or n.ended_at is distinct from h.ended_at)
""")

# The same allowance as a fold has: so little cannot shrink, but one node alone must. What an app wrote by insert_node is
# its own affair.
FOLD_IS_SMALLER = _broken(f"""
    select n.id from mneme.summary_nodes n join ({_HULLS}) as h on h.node_id = n.id
     where n.level > 1 and n.run_id is not null and n.token_count >= h.tokens
       and not (h.parents > 1 and h.tokens < :cannot_shrink_tokens and n.token_count <= :cannot_shrink_tokens)
""")

# ------------------------------------------------------------------------------------------------ messages and texts

NODE_HAS_MESSAGE = _broken("""
    select n.id from mneme.summary_nodes n
     where not exists (select from mneme.messages m
                        where m.id = n.id and m.session_id = n.session_id and m.is_summary)
""")

MESSAGE_HAS_NODE = _broken("""
    select m.id from mneme.messages m
     where m.is_summary and not exists (select from mneme.summary_nodes n where n.id = m.id)
""")

# No two parts of a message have the same index, which is never negative.
NODE_HAS_PARTS = _broken("""
    select n.id from mneme.summary_nodes n
     where not exists (select from mneme.message_parts p
                        where p.message_id = n.id and p.part_index = 0 and p.part_type = 'text')
    union
    select n.id from mneme.summary_nodes n
     where not exists (select from mneme.message_parts p
                        where p.message_id = n.id and p.part_index = 1 and p.part_type = 'compaction')
    union
    select n.id from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index > 1
""")

# What can be seen is nearly always among the first characters, and a long text need not be unpacked for these.
CONTENT_IS_VISIBLE = _broken("""
    select n.id from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where octet_length(p.content) > :most_bytes
        or (mneme.is_blank(left(p.content, 40)) and mneme.is_blank(p.content))
""")

# Of active nodes alone, whose counts budgets are made of: asking about every text ever written takes a minute for a million.
# What was written before revision 0005 was counted by the estimate of then, which was a matter of two lengths.
OLD_ESTIMATE = "(33 * octet_length(p.content) - 10 * char_length(p.content) + 99) / 100"

TOKENS_ARE_ESTIMATED = _broken(f"""
    select n.id from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where n.superseded_by is null and n.retired_at is null and n.token_count <> {OLD_ESTIMATE}
       and n.token_count <> mneme.estimate_tokens(p.content)
""")

# ------------------------------------------------------------------------------------------------ runs

RUN_HAS_NODE = _broken("""
    select r.id from mneme.compaction_runs r left join mneme.summary_nodes n on n.id = r.node_id
     where r.state = 'succeeded'
       and (n.id is null or n.run_id is distinct from r.id or n.session_id <> r.session_id or n.level <> r.level)
""")

NODE_HAS_RUN = _broken("""
    select n.id from mneme.summary_nodes n left join mneme.compaction_runs r on r.id = n.run_id
     where n.run_id is not null and r.node_id is distinct from n.id
""")

INPUTS_ARE_PARENTS = _broken("""
    select r.id
      from mneme.compaction_runs r
      join (select node_id, array_agg(parent_id) as ids from mneme.summary_edges group by node_id) as parents
        on parents.node_id = r.node_id
     where r.state = 'succeeded' and not (r.input_ids @> parents.ids and r.input_ids <@ parents.ids)
""")

LEASES_ARE_ALIVE = _broken("""
    select r.id from mneme.compaction_runs r
     where r.state = 'running' and r.lease_expires_at < clock_timestamp() - make_interval(secs => :dead_seconds)
""")

# What leads the sweep to a session: a node that it has not seen, a running run (it counts again at its end, or is closed
# when its lease has passed), a run that is to be tried again. Any of them, at whatever level, has the whole session counted.
# By the thresholds that the sweep last counted everything with: with others it will first do so again. A paused session
# is to be left alone; resuming it enqueues it.
DUE_IS_SEEN = _broken(f"""
    select s.id
      from mneme.sessions s
      join (select distinct n.session_id from mneme.summary_nodes n
             where {UNCOVERED}
               and n.level < coalesce((select max_level from mneme.sweep_state), :max_level)
             group by n.session_id, n.level
            having count(*) >= coalesce((select threshold from mneme.sweep_state), :threshold)) as due
        on due.session_id = s.id
     where s.paused_at is null
       and not exists (select from mneme.summary_nodes u where u.session_id = s.id and u.swept_at is null)
       and not exists (select from mneme.compaction_runs r where r.session_id = s.id
                        and (r.state = 'running' or r.retry_at is not null))
""")

# ------------------------------------------------------------------------------------------------ the catalogue

# What is there and in force. A foreign key is in force only with all its triggers.
SOUND_OBJECTS = text("""
    select 'constraint' as kind, r.relname as table_name, c.conname as name
      from pg_constraint c join pg_class r on r.oid = c.conrelid
     where r.relnamespace = 'mneme'::regnamespace and c.convalidated
       and not exists (select from pg_trigger t where t.tgconstraint = c.oid and t.tgenabled not in ('O', 'A'))
    union all
    select 'unique index', r.relname, x.relname
      from pg_index i join pg_class r on r.oid = i.indrelid join pg_class x on x.oid = i.indexrelid
     where r.relnamespace = 'mneme'::regnamespace and i.indisunique and i.indisvalid and i.indisready
    union all
    select 'generated column', r.relname, a.attname
      from pg_attribute a join pg_class r on r.oid = a.attrelid
     where r.relnamespace = 'mneme'::regnamespace and a.attgenerated <> '' and not a.attisdropped
    union all
    select 'trigger', r.relname, t.tgname
      from pg_trigger t join pg_class r on r.oid = t.tgrelid
     where r.relnamespace = 'mneme'::regnamespace and not t.tgisinternal and t.tgenabled in ('O', 'A')
""")
