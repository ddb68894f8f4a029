"""Who owns what in the schema, and who may do what: to be the same after a restore."""

import psycopg

_RIGHTS = """
    with things as (
        select 'schema' as kind, n.nspname::text as name, n.nspowner as owner,
               coalesce(n.nspacl, acldefault('n', n.nspowner)) as acl, '' as how
          from pg_namespace n where n.nspname = 'mneme'
         union all
        select 'relation', c.relname, c.relowner,
               coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)),
               c.relkind::text
          from pg_class c where c.relnamespace = 'mneme'::regnamespace and c.relkind in ('r', 'v', 'S')
         union all
        select 'column', c.relname || '.' || a.attname, c.relowner, a.attacl, ''
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attacl is not null
         where c.relnamespace = 'mneme'::regnamespace
         union all
        select 'function', p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)),
               p.prosecdef || ' ' || coalesce(p.proconfig::text, '')
          from pg_proc p where p.pronamespace = 'mneme'::regnamespace
         union all
        select 'trigger', t.tgrelid::regclass || ' ' || t.tgname, c.relowner, null::aclitem[], t.tgenabled::text
          from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where c.relnamespace = 'mneme'::regnamespace and not t.tgisinternal)
    select kind, name, pg_get_userbyid(owner) as owner, how,
           (select array_agg(case grantee when 0 then 'public' else pg_get_userbyid(grantee) end || ' ' || privilege_type
                             order by 1) from aclexplode(acl)) as rights
      from things order by kind, name
"""

_PUBLIC = """
    select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
     where p.pronamespace = 'mneme'::regnamespace and a.grantee = 0
"""


def rights(url: str) -> set[str]:
    """Return a line for each thing in the schema: what, whose, how it runs, and who may do what."""
    with psycopg.connect(url) as connection:
        return {" | ".join(map(str, row)) for row in connection.execute(_RIGHTS).fetchall()}


def functions_of_everybody(url: str) -> int:
    """Return how many functions of the schema every role may execute that may use the schema."""
    with psycopg.connect(url) as connection:
        row = connection.execute(_PUBLIC).fetchone()
    return int(row[0]) if row else 0
