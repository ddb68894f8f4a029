import os
import signal
from collections.abc import Iterator

import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from models import SummaryDAGStore, load_settings, make_engine, migrate
from models.settings import Settings
from tests.support.processes import wait_until
from tests.support.servers import Postgres, postgres_server, redis_server

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The developer's own settings must not reach the tests.
for name in list(os.environ):
    if name.startswith(("MNEME_", "OPENAI_")) or name in ("DATABASE_URL", "REDIS_URL"):
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: at the end all processes have something to do until all is done."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/deploy/test_topology", "tests/worker/")))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgres: Postgres) -> str:
    postgres.execute("create database mneme_test")
    engine = make_engine(_sqlalchemy(postgres.url("mneme_test")), pooled=False)
    migrate(engine)
    engine.dispose()
    return "mneme_test"


_EMPTY = """
    select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
    truncate mneme.sessions, mneme.messages, mneme.message_parts, mneme.summary_nodes, mneme.summary_edges,
             mneme.compaction_runs, mneme.sweep_state, mneme.breakers, mneme.service_state, mneme.workers;
    insert into mneme.sweep_state default values;
    insert into mneme.service_state default values
"""


@pytest.fixture
def database_url(postgres: Postgres, shared_database: str) -> str:
    """The URL of a migrated database without a row; whoever was still connected to it no longer is."""
    postgres.execute(_EMPTY, shared_database)
    return postgres.url(shared_database)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(_sqlalchemy(database_url), pool_size=20)
    yield engine
    # A connection that a thread of the test still holds would be found later, in another test.
    wait_until(lambda: engine.pool.checkedout() == 0, 10, "every connection to be given back")
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
def store(session: Session) -> SummaryDAGStore:
    return SummaryDAGStore(session)


@pytest.fixture
def new_session(engine: Engine) -> sessionmaker[Session]:
    return sessionmaker(engine)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def broker(redis_url: str) -> Iterator[redis.Redis]:
    """An empty broker."""
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def environ(database_url: str, redis_url: str) -> dict[str, str]:
    """The settings that every process of a test needs; a test adds its own."""
    return {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "MNEME_LLM__MODEL": "extract"}


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ)


def _sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def scalar(engine: Engine):
    """Run a statement in a transaction of its own and return its first value."""

    def run(statement: str, **parameters: object) -> object:
        with engine.begin() as connection:
            result = connection.execute(text(statement), parameters)
            return result.scalar() if result.returns_rows else result.rowcount

    return run
