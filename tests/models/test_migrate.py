"""Migrations, rights, and what a granted role can do from psql."""

import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from models import (
    SchemaError,
    StorageError,
    SummaryDAGStore,
    SummaryNode,
    check_schema,
    estimate_tokens,
    grant,
    load_settings,
    make_engine,
    migrate,
)
from models.doctor import diagnose
from models.migrate import known_revisions
from tests.support.processes import ROOT, mneme, run
from tests.support.servers import Postgres, psql_program
from tests.support.snapshots import node, write


@pytest.fixture
def empty_url(postgres: Postgres) -> Iterator[str]:
    name = f"empty_{uuid.uuid4().hex[:12]}"
    postgres.execute(f"create database {name}")
    yield postgres.url(name)
    postgres.execute(f"drop database {name} with (force)")


@contextmanager
def login(postgres: Postgres, kind: str, database: str) -> Iterator[str]:
    """A role that is nothing yet, gone afterwards with what it owns in a database. Its name needs quoting."""
    name = f"{kind} {uuid.uuid4().hex[:6]}"
    postgres.execute(f'create role "{name}" login')
    try:
        yield name
    finally:
        postgres.execute(f'drop owned by "{name}"', database)
        postgres.execute(f'drop role "{name}"')


@pytest.fixture
def empty(empty_url: str) -> Iterator[Engine]:
    engine = make_engine(empty_url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


def test_the_command_migrates_and_may_be_run_again(empty_url: str) -> None:
    first = run(mneme("migrate"), {"DATABASE_URL": empty_url})
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"schema mneme: nothing -> {known_revisions()[-1]}\n"
    second = run(mneme("migrate"), {"DATABASE_URL": empty_url})
    assert (second.returncode, second.stdout) == (0, f"schema mneme: {known_revisions()[-1]}, up to date\n")


def test_two_processes_may_migrate_at_once(empty_url: str, empty: Engine) -> None:
    commands = [
        subprocess.Popen(
            mneme("migrate"), env={"DATABASE_URL": empty_url}, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for done in commands:
        out, err = done.communicate(timeout=60)
        assert done.returncode == 0, err
        assert out.startswith(b"schema mneme: ")
    check_schema(empty)


# Paths, ids and numbers: counted much too low before 0005. Arabic: much too high.
DENSE = "2026-03-01T09:14:22Z run 3f2a9c1e-07e4 failed: 10.0.12.7:5432, /var/log/app.log (3/5); " * 9
ARABIC = "قرر الفريق نقل قاعدة البيانات إلى خادم جديد. " * 9


def test_an_upgrade_counts_anew_what_waits_and_leaves_what_was_folded(empty: Engine) -> None:
    assert migrate(empty, "0004")[1] == "0004"
    dense = write(empty, "s", range(5), content=DENSE)
    with Session(empty) as session, session.begin():
        store = SummaryDAGStore(session)
        parents = tuple(node.id for node in dense if node.id)
        fold = store.insert_node(
            SummaryNode(session_id="s", level=2, span_start=1, span_end=50, content=ARABIC, parent_node_ids=parents)
        )
        store.mark_superseded(parents)
    waiting = write(empty, "s", [5], content=DENSE) + write(empty, "s", [6], content=ARABIC)
    assert migrate(empty) == ("0004", known_revisions()[-1])
    for before in (*dense, fold, waiting[1]):
        assert node(empty, before.id).token_count == before.token_count
    anew = node(empty, waiting[0].id).token_count
    assert anew == estimate_tokens(DENSE)
    assert anew > 1.5 * (waiting[0].token_count or 0)
    assert {finding.rule.name for finding in diagnose(empty, load_settings({})) if finding.violations} == set()


def test_a_migration_and_a_writer_in_the_middle_of_its_transaction_do_not_end_each_other(empty: Engine) -> None:
    migrate(empty, "0005")
    with ThreadPoolExecutor() as thread, empty.begin() as writer:
        writer.execute(text("insert into mneme.sessions (id) values ('s')"))
        migrating = thread.submit(migrate, empty)
        time.sleep(0.5)  # by now it would hold what is needed next, and wait for what is held
        writer.execute(text("select mneme.write_l1_snapshot('s', 1, 10, 'A snapshot.')"))
        writer.commit()
        assert migrating.result(20) == ("0005", known_revisions()[-1])


def test_a_main_apps_own_alembic_and_tables_are_left_alone(empty: Engine, tmp_path, monkeypatch) -> None:
    """The main app has an alembic.ini in its directory, its own version table, and a table called sessions."""
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = migrations\n")
    (tmp_path / "migrations" / "env.py").write_text(
        "from alembic import context\n"
        "context.configure(connection=context.config.attributes['connection'])\n"
        "with context.begin_transaction():\n    context.run_migrations()\n"
    )
    (versions / "app1.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\nrevision = 'app1'\ndown_revision = None\n"
        "def upgrade():\n    op.create_table('sessions', sa.Column('id', sa.Integer, primary_key=True))\n"
    )
    monkeypatch.chdir(tmp_path)

    def upgrade_main_app() -> None:
        config = Config("alembic.ini")
        config.set_main_option("path_separator", "os")
        with empty.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    upgrade_main_app()
    migrate(empty)
    upgrade_main_app()
    with empty.connect() as connection:
        assert connection.execute(text("select version_num from public.alembic_version")).scalars().all() == ["app1"]
        assert (
            connection.execute(text("select version_num from mneme.alembic_version")).scalars().all()
            == known_revisions()[-1:]
        )
        assert connection.execute(text("select count(*) from public.sessions")).scalar() == 0
        public = "select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
        assert connection.execute(text(public)).scalar() == 2


def test_a_missing_schema_is_named_with_its_remedy(empty: Engine) -> None:
    with pytest.raises(SchemaError, match="no schema of mneme: run `mneme migrate`"):
        check_schema(empty)


def test_a_schema_of_a_newer_release_is_left_alone(empty: Engine) -> None:
    migrate(empty)
    with empty.begin() as connection:
        connection.execute(text("update mneme.alembic_version set version_num = '9999'"))
    check_schema(empty)  # workers of the release before run on
    with pytest.raises(SchemaError, match="9999, which this release does not know"):
        migrate(empty)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_is_not_utf8_is_refused(postgres: Postgres, encoding: str) -> None:
    postgres.execute(f"create database other_encoding template template0 encoding '{encoding}' locale 'C'")
    try:
        done = run(mneme("migrate"), {"DATABASE_URL": postgres.url("other_encoding")})
        assert done.stderr == f"mneme: the database is encoded in {encoding}: mneme needs one in UTF8\n"
        assert done.returncode == 2
    finally:
        postgres.execute("drop database other_encoding with (force)")


def test_a_table_in_the_way_is_one_sentence(empty_url: str, empty: Engine) -> None:
    with empty.begin() as connection:
        connection.execute(text("create schema mneme"))
        connection.execute(text("create table mneme.sessions (id int)"))
    done = run(mneme("migrate"), {"DATABASE_URL": empty_url})
    assert (done.returncode, done.stderr) == (
        1,
        'mneme: database: relation "sessions" already exists (SQLSTATE 42P07)\n',
    )


def test_the_owner_of_the_schema_needs_no_right_on_the_database(
    postgres: Postgres, empty: Engine, empty_url: str
) -> None:
    database = empty_url.rpartition("/")[2]
    with login(postgres, "Owner", database) as name:
        postgres.execute(f'create schema mneme authorization "{name}"', database)
        done = run(mneme("migrate"), {"DATABASE_URL": postgres.url(database, name)})
        assert (done.returncode, done.stderr) == (0, "")


def test_a_role_that_may_not_create_a_schema_is_told_what_it_lacks(
    postgres: Postgres, empty: Engine, empty_url: str
) -> None:
    database = empty_url.rpartition("/")[2]
    with login(postgres, "Guest", database) as name:
        done = run(mneme("migrate"), {"DATABASE_URL": postgres.url(database, name)})
        remedy = f'grant create on database {database} to "{name}"'
        assert done.returncode == 1
        assert done.stderr == (
            f"mneme: the role {name} may not create a schema in this database: as the database's owner, {remedy}\n"
        )
        postgres.execute(remedy)
        assert run(mneme("migrate"), {"DATABASE_URL": postgres.url(database, name)}).returncode == 0


def test_no_database_is_one_sentence_and_exit_code_1(postgres: Postgres) -> None:
    done = run(mneme("migrate"), {"DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/none"})
    assert done.returncode == 1
    assert done.stderr.startswith("mneme: database: out of reach")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


def test_an_unset_database_is_exit_code_2() -> None:
    done = run(mneme("migrate"), {})
    assert (done.returncode, done.stdout) == (2, "")
    assert "database.url is not set: set DATABASE_URL" in done.stderr


# ------------------------------------------------------------------------------------------------ the granted role


@pytest.fixture(scope="module")
def role(shared_database: str, postgres: Postgres) -> Iterator[str]:
    """A role with a name that needs quoting, granted by the command."""
    with login(postgres, "Main app", shared_database) as name:
        done = run(mneme("grant", name), {"DATABASE_URL": postgres.url(shared_database)})
        assert (done.returncode, done.stderr) == (0, "")
        yield name


@pytest.fixture
def psql(postgres: Postgres, database_url: str, role: str):
    def run_psql(statement: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [psql_program(), "-X", "-A", "-t", "-q", "-h", "127.0.0.1", "-p", str(postgres.port), "-U", role,
             "-d", database_url.rpartition("/")[2], "-c", statement],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip

    return run_psql


def test_a_granted_role_writes_snapshots_from_psql(psql, engine: Engine) -> None:
    written = psql(
        "select mneme.write_l1_snapshot('s', 1, 9, 'Hello; it''s snowing.', now() - interval '1 day', now(), 7)"
    )
    assert written.returncode == 0, written.stderr
    node_id = written.stdout.strip()
    assert psql("select mneme.write_l1_snapshot('s', 1, 9, 'Hello; it''s snowing.')").stdout.strip() == node_id
    named = psql("select mneme.write_l1_snapshot(session_id => 's', span_start => 10, span_end => 10, content => 'x')")
    assert named.returncode == 0, named.stderr
    with engine.connect() as connection:
        rows = connection.execute(text("select id::text, content, reported_tokens from mneme.active_summary_nodes"
                                       " order by span_start")).all()  # fmt: skip
    assert [tuple(row) for row in rows] == [(node_id, "Hello; it's snowing.", 7), (named.stdout.strip(), "x", None)]
    assert (
        psql("select content from mneme.active_summary_nodes where session_id = 's' and span_start = 10").stdout
        == "x\n"
    )


BAD_SNAPSHOTS = {
    "the same span with other text": ("'s', 1, 9, 'other'", "already covered by snapshot .* with other content"),
    "blank": ("'s', 10, 19, e' \\n\\t '", "the content is blank"),
    "null": ("'s', 10, 19, null", "the content is blank"),
    "reversed": ("'s', 19, 10, 'x'", "the span is reversed"),
    "too long": ("'s', 10, 19, repeat('x', 32769)", "32769 bytes, at most 32768"),
    "no session": ("'', 10, 19, 'x'", "session id must have 1 to 255 bytes"),
    "null session": ("null, 10, 19, 'x'", "session id must have 1 to 255 bytes"),
    "long session": ("repeat('x', 256), 10, 19, 'x'", "session id must have 1 to 255 bytes"),
    "null span": ("'s', null, 19, 'x'", "span_start and span_end must be given"),
    "reversed times": ("'s', 10, 19, 'x', now(), now() - interval '1 h'", "the times are reversed"),
    "until for ever": ("'s', 10, 19, 'x', now(), 'infinity'", "between the years 2 and 9998"),
    "before all time": ("'s', 10, 19, 'x', '4000-01-01 BC', now()", "between the years 2 and 9998"),
    "invisible": ("'s', 10, 19, e'\\u2800\\u3164'", "the content is blank"),
    "null for what is there": ("'s', 1, 9, null", "the content is blank"),
    "negative tokens": ("'s', 10, 19, 'x', null, null, -1", "token_count must not be negative"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_SNAPSHOTS.values(), ids=BAD_SNAPSHOTS.keys())
def test_bad_snapshots_are_refused_in_plain_words(psql, engine: Engine, arguments: str, message: str) -> None:
    psql("select mneme.write_l1_snapshot('s', 1, 9, 'Hello.')")
    done = psql(f"select mneme.write_l1_snapshot({arguments})")
    assert done.returncode == 1
    assert done.stderr.startswith("ERROR:  mneme: ")
    assert re.search(message, done.stderr)
    with engine.connect() as connection:
        assert connection.execute(text("select count(*) from mneme.messages")).scalar() == 1
        assert connection.execute(text("select count(*) from mneme.summary_nodes")).scalar() == 1


def test_a_granted_role_appends_messages_and_nothing_else(psql, engine: Engine) -> None:
    assert psql("insert into mneme.sessions (id) values ('s') on conflict do nothing").returncode == 0
    appended = psql("insert into mneme.messages (session_id, seq, role) values ('s', 1, 'user') returning id")
    assert appended.returncode == 0, appended.stderr
    part = f"insert into mneme.message_parts (message_id, part_index, part_type, content) values ('{appended.stdout.strip()}',"
    assert psql(part + " 0, 'text', 'hello')").returncode == 0
    assert psql("select mneme.estimate_tokens('hello, world')").stdout == "3\n"
    for forbidden in (
        "insert into mneme.messages (session_id, is_summary, role) values ('s', true, 'user')",
        "update mneme.messages set role = 'x'",
        "delete from mneme.messages",
        "select * from mneme.summary_nodes",
        "update mneme.summary_nodes set superseded_by = null",
        "select * from mneme.compaction_runs",
        "select mneme.insert_summary_node(null, 's', 1, 1, 2, 'x')",
        "update mneme.sessions set paused_at = now()",
        "insert into mneme.messages (session_id, role) values ('s', 'user')",
        "create table mneme.mine (id int)",
    ):
        done = psql(forbidden)
        assert "permission denied" in done.stderr or "messages_seq_null" in done.stderr, forbidden


def test_a_hostile_search_path_changes_nothing(psql, postgres: Postgres, database_url: str) -> None:
    """A security definer function must not be led to the caller's own tables and functions."""
    done = psql(
        "create temporary table sessions (id text); create temporary table summary_nodes (id int);"
        " set search_path = pg_temp, mneme; select mneme.write_l1_snapshot('s', 1, 9, 'Hello.')"
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_role_is_named(database_url: str) -> None:
    done = run(mneme("grant", "nobody_here"), {"DATABASE_URL": database_url})
    assert done.returncode == 1
    assert done.stderr == "mneme: there is no role 'nobody_here' in this database: create it first\n"


def test_granting_without_a_schema_names_the_remedy(empty: Engine, postgres: Postgres) -> None:
    with pytest.raises(SchemaError, match="mneme migrate"):
        grant(empty, "postgres")


def test_ungranted_roles_cannot_even_see_the_schema(engine: Engine, postgres: Postgres, database_url: str) -> None:
    database = database_url.rpartition("/")[2]
    with login(postgres, "Stranger", database) as name:
        stranger = make_engine(postgres.url(database, name).replace("postgresql:", "postgresql+psycopg:"))
        with pytest.raises(StorageError, match="permission denied"):
            migrate(stranger)
        stranger.dispose()


def test_the_files_of_the_migrations_are_what_alembic_walks() -> None:
    from models.migrate import _alembic

    walked = [script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions()]
    assert known_revisions() == walked[::-1]


def test_a_command_that_migrates_nothing_does_not_wait_for_what_would() -> None:
    asked = (
        "import sys, models; print([name for name in ('alembic', 'mako', 'openai', 'celery') if name in sys.modules])"
    )
    assert run([sys.executable, "-c", asked], {}).stdout == "[]\n"
