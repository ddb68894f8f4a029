"""The client with the tests' broker, and Django set up once for the process, as a main app would."""

from collections.abc import Iterator

import django
import mneme_client
import pytest
import redis
from django.conf import settings as django_settings
from django.db import connections
from mneme_client.outbox import outbox

from tests.support.servers import Postgres


@pytest.fixture
def hints(broker: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """The broker that REDIS_URL names, where hints arrive."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    yield broker
    outbox.flush(5)


@pytest.fixture(autouse=True)
def no_configuration_is_left() -> Iterator[None]:
    yield
    mneme_client.configure(broker_url=None)


@pytest.fixture(scope="session")
def django_set_up(postgres: Postgres, shared_database: str) -> None:
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": shared_database,
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": str(postgres.port),
    }
    django_settings.configure(DATABASES={"default": database, "other": dict(database)}, USE_TZ=True)
    django.setup()


@pytest.fixture
def django_db(django_set_up: None, database_url: str) -> Iterator[None]:
    connections.close_all()  # emptying the database has cut them off
    yield
    connections.close_all()
