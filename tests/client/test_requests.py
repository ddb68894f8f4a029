"""What is refused before the database is asked, and how the database's refusals are told."""

import asyncio
import sqlite3
from datetime import datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mneme_client import (
    DatabaseError,
    InvalidInput,
    SchemaMissing,
    UnsupportedConnection,
    active,
    aio,
    memory,
    write_snapshot,
)
from mneme_client.requests import write_request
from mneme_client.text import clean_text
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import models
from tests.support.servers import Postgres, free_port


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"session_id": 5}, "a session id must be text, not int"),
        ({"session_id": ""}, "1 to 255 bytes, not 0"),
        ({"session_id": "é" * 128}, "not 256"),
        ({"session_id": "a\0"}, "must not hold NUL"),
        ({"span_start": None}, "span_start must be a whole number"),
        ({"span_start": True}, "span_start must be a whole number"),
        ({"span_end": 2**63}, "span_end must be between"),
        ({"span_end": 1.0}, "span_end must be a whole number"),
        ({"token_count": "7"}, "token_count must be a whole number"),
        ({"content": b"bytes"}, "content must be text, not bytes"),
        ({"started_at": datetime(2026, 3, 1)}, "started_at must be a datetime with a time zone"),  # noqa: DTZ001
        ({"ended_at": "2026-03-01"}, "ended_at must be a datetime with a time zone"),
    ],
)
def test_wrong_types_are_refused_by_name(wrong: dict[str, Any], reason: str) -> None:
    right: dict[str, Any] = {
        "session_id": "s", "span_start": 1, "span_end": 10, "content": "Text.",
        "started_at": None, "ended_at": None, "token_count": None,
    }  # fmt: skip
    write_request(**right)
    with pytest.raises(InvalidInput, match=reason):
        write_request(**(right | wrong))


def test_a_request_shows_no_text() -> None:
    assert "secret" not in repr(write_request("s", 1, 10, "a secret", None, None, None))


@given(st.text(alphabet=st.characters(codec=None)))
def test_text_is_cleaned_as_the_service_cleans_it(dirty: str) -> None:
    assert clean_text(dirty) == models.clean_text(dirty)


@pytest.mark.parametrize(
    "thing", [None, 5, object(), sqlite3, "an alias without Django's settings", sqlite3.Connection]
)
def test_what_is_no_connection_is_refused(thing: Any, django_set_up: None) -> None:
    with pytest.raises(UnsupportedConnection):
        memory(thing, "s", 100)
    with pytest.raises(UnsupportedConnection):
        asyncio.run(aio.memory(thing, "s", 100))


def test_the_wrong_half_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedConnection, match=r"in mneme_client\.aio"):
        active(AsyncSession(), "s")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedConnection, match="a Session is no connection of SQLAlchemy's asyncio"):
        asyncio.run(aio.active(Session(), "s"))  # type: ignore[arg-type]


def test_a_database_without_the_schema_says_what_to_do(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url("postgres")) as connection:
        with pytest.raises(SchemaMissing, match=r"run `mneme migrate`") as raised:
            write_snapshot(connection, "s", 1, 10, "Text.")
        assert raised.value.sqlstate == "3F000"
        connection.execute("select 1")  # still usable
        with pytest.raises(SchemaMissing):
            active(connection, "s")


def test_a_role_with_the_granted_rights_can_do_everything(postgres: Postgres, database_url: str) -> None:
    postgres.execute("drop role if exists app")
    postgres.execute("create role app login")
    url = database_url.replace("postgres@", "app@")
    try:
        with psycopg.connect(url) as connection, pytest.raises(SchemaMissing, match="permission denied"):
            write_snapshot(connection, "s", 1, 10, "Text.")
        engine = models.make_engine(database_url.replace("postgresql:", "postgresql+psycopg:"), pooled=False)
        models.grant(engine, "app")
        with psycopg.connect(url) as connection:
            write_snapshot(connection, "s", 1, 10, "Text.")
            assert len(active(connection, "s")) == 1
            assert "Text." in memory(connection, "s", 100)
    finally:
        name = database_url.rsplit("/", 1)[1]
        postgres.execute("drop owned by app", name)
        postgres.execute("drop role app")


def test_a_database_out_of_reach_is_an_error_of_ours(database_url: str) -> None:
    url = f"postgresql+psycopg://postgres@127.0.0.1:{free_port()}/none"
    with (
        Session(create_engine(url, poolclass=NullPool)) as session,
        pytest.raises(DatabaseError, match=r"did not answer \(OperationalError\)"),
    ):
        write_snapshot(session, "s", 1, 10, "Text.")
    connection = psycopg.connect(database_url)
    connection.close()
    with pytest.raises(DatabaseError, match=r"did not answer \(OperationalError\)"):
        write_snapshot(connection, "s", 1, 10, "Text.")
