"""The demo: a believable session, written as an agent's app would write it, folded by a real worker."""

import os
import time
from collections.abc import Callable, Mapping
from importlib.resources import files

from sqlalchemy import Engine
from sqlalchemy.orm import sessionmaker

from models import sql
from models.engine import transaction
from models.errors import MnemeError
from models.nodes import SummaryNode
from models.runs import count
from models.settings import EXTRACT, Settings, load_settings
from models.snapshot_lines import parse_line
from models.store import SummaryDAGStore
from tasks.enqueueing import enqueue_on_commit

SESSION_ID = "demo"
LOOK_EVERY_SECONDS = 0.1
_OF_ONES_OWN = ("DATABASE_URL", "REDIS_URL", "MNEME_DATABASE__URL", "MNEME_BROKER__URL")


def demo_snapshots() -> list[SummaryNode]:
    """Return the sample session: an agent's project over two weeks, with dead ends, reversals and names."""
    lines = (files("worker") / "demo_session.jsonl").read_bytes().splitlines()
    return [parse_line(line) for line in lines]


def demo_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the demo.

    Without the addresses of servers, so that no database of anybody's is written to, unless ``embedded.servers`` says
    *environment*. With the configured model if it can be asked, else with the extract.

    Raises:
        SettingsError: the settings are wrong.
    """
    settings = load_settings(environ)
    own = {} if settings.embedded.servers == "environment" else dict.fromkeys(_OF_ONES_OWN, "")
    can_ask = settings.llm.model and (environ.get("OPENAI_API_KEY") or settings.llm.base_url)
    return {**environ, **own, "MNEME_LLM__MODEL": settings.llm.model if can_ask and settings.llm.model else EXTRACT}


def write_and_wait(
    engine: Engine, settings: Settings, snapshots: list[SummaryNode], folded: Callable[[int], None]
) -> None:
    """Write the snapshots in the order of the conversation, and wait for each fold that they make due.

    Args:
        engine: where.
        settings: threshold and time limits.
        snapshots: what to write.
        folded: called with a number of snapshots each time that they are written and, if they were due, folded.

    Raises:
        MnemeError: a fold failed, or did not come in the time that a run may take.
    """
    new_session = sessionmaker(engine)
    enqueue_on_commit(new_session, settings=settings)
    step = settings.mneme.l2_snapshot_threshold
    for start in range(0, len(snapshots), step):
        for snapshot in snapshots[start : start + step]:
            with new_session.begin() as session:
                SummaryDAGStore(session).insert_node(snapshot)
        _wait_for_fold(engine, settings)
        folded(len(snapshots[start : start + step]))


def _wait_for_fold(engine: Engine, settings: Settings) -> None:
    until = time.monotonic() + settings.mneme.run_seconds
    while True:
        with transaction(engine) as connection:
            due = count(connection, SESSION_ID, settings.mneme).due
            failed = connection.execute(sql.LAST_FAILURE, {"session_id": SESSION_ID}).scalar_one_or_none()
        if failed:
            raise MnemeError(f"a fold failed: {failed}")
        if not due:
            return
        if time.monotonic() > until:
            raise MnemeError(f"no fold came within {settings.mneme.run_seconds:g} s: is the worker's log of any help?")
        time.sleep(LOOK_EVERY_SECONDS)
