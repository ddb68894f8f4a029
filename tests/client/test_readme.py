"""The snippets of client/README.md do what they say."""

import asyncio
import re
import textwrap
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.support.broker import enqueued
from tests.support.processes import ROOT
from tests.support.snapshots import DAY_ONE, active

README = (ROOT / "client" / "README.md").read_text()
SNIPPETS = dict(re.findall(r"## (\w+)\n(?:(?!```).)*```python\n(.*?)```", README, re.DOTALL))


def test_there_is_one_for_each_library() -> None:
    assert list(SNIPPETS) == ["SQLAlchemy", "asyncio", "psycopg", "Django"]


@pytest.mark.parametrize("name", SNIPPETS)
@pytest.mark.usefixtures("django_db")
def test_a_snippet_works(name: str, database_url: str, engine: Engine, hints: redis.Redis) -> None:
    names: dict[str, Any] = {"engine": engine, "Session": Session, "psycopg": psycopg, "database_url": database_url}
    names |= {"first_message_at": DAY_ONE, "last_message_at": DAY_ONE}
    if name == "asyncio":
        names |= {"engine": create_async_engine(database_url, poolclass=NullPool), "AsyncSession": AsyncSession}
        exec("async def main():\n" + textwrap.indent(SNIPPETS[name], "    "), names)
        asyncio.run(names["main"]())
    else:
        exec(SNIPPETS[name], names)
    assert [node.content for node in active(engine, "chat-42")] == ["Zoe chose Postgres over MySQL."]
    assert enqueued(hints, 1) == ["chat-42"]
    assert "Zoe" in names.get("prompt", "Zoe")
