"""The doctor: judges the rows against the rules of ``doctor_rules``, on one consistent state of the database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, Engine

from models import doctor_sql
from models.doctor_rules import RULES, Rule, SchemaObject
from models.engine import transaction
from models.settings import Settings
from models.text import CANNOT_SHRINK_TOKENS, MAX_CONTENT_BYTES

STATEMENT_SECONDS = 600.0
FIRST_IDS = 5
_SHORTEST_DEAD_SECONDS = 600.0


@dataclass(frozen=True)
class Finding:
    """What was seen of one rule.

    Attributes:
        rule: the rule.
        violations: how many rows break it, and objects of the schema are missing that would keep it.
        first_ids: the ids of the first five of those rows, in order; what they are ids of, ``rule.ids_of`` says.
        missing: what should keep the rule and is not there, or not in force.
    """

    rule: Rule
    violations: int
    first_ids: tuple[str, ...] = ()
    missing: tuple[SchemaObject, ...] = ()

    @property
    def status(self) -> Literal["ok", "by the schema", "broken"]:
        """How the rule stands; *by the schema* is what no row can break."""
        if self.violations:
            return "broken"
        return "ok" if self.rule.statement is not None else "by the schema"


def diagnose(engine: Engine, settings: Settings) -> list[Finding]:
    """Judge every rule in a transaction of its own, which reads one state and writes nothing; workers go on meanwhile.

    Args:
        engine: where.
        settings: thresholds and schedules that the workers have.

    Raises:
        StorageError: the database is out of reach, refused, or took more than 10 minutes for one rule.
    """
    with one_state(engine) as connection:
        return examine(connection, settings)


@contextmanager
def one_state(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads one state of the database, whatever is written meanwhile, and can write nothing.

    Raises:
        StorageError: the database is out of reach or refused.
    """
    snapshot = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with transaction(snapshot, statement_seconds=STATEMENT_SECONDS) as connection:
        yield connection


def examine(connection: Connection, settings: Settings, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Judge the rules in the caller's transaction, in their order.

    Under read committed each rule would see another state, and find broken what was only written in between.

    Args:
        connection: where; the caller's transaction.
        settings: thresholds and schedules that the workers have.
        rules: which to judge.
    """
    connection.execute(doctor_sql.PREPARE)
    sound = {SchemaObject(*row) for row in connection.execute(doctor_sql.SOUND_OBJECTS)}
    return [_judge(connection, rule, sound, _parameters(settings)) for rule in rules]


def _judge(connection: Connection, rule: Rule, sound: set[SchemaObject], parameters: dict[str, int | float]) -> Finding:
    missing = tuple(wanted for wanted in rule.enforced_by if wanted not in sound)
    if rule.statement is None:
        return Finding(rule, len(missing), missing=missing)
    found = connection.execute(rule.statement, parameters).one()
    return Finding(rule, found.violations + len(missing), tuple(found.first_ids), missing)


def _parameters(settings: Settings) -> dict[str, int | float]:
    return {
        "most": FIRST_IDS,
        "threshold": settings.mneme.l2_snapshot_threshold,
        "max_level": settings.mneme.max_level,
        "dead_seconds": max(_SHORTEST_DEAD_SECONDS, 3 * settings.schedules.sweep_seconds),
        "cannot_shrink_tokens": CANNOT_SHRINK_TOKENS,
        "most_bytes": MAX_CONTENT_BYTES,
    }
