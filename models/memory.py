"""Reading memory back: what an agent should carry in its context now."""

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from models import sql
from models.checks import known_session_id
from models.settings import MnemeSettings


def memory(connection: Connection | Session, session_id: str, token_budget: int, settings: MnemeSettings) -> str:
    """Return the session's memory as text, in one round trip; ``mneme.memory`` in SQL gives the same.

    Two parts, each in the order of the conversation: long-term memory (level 2 and up) in ``l2_budget_fraction`` of the
    budget, recent memory (level 1) in ``l1_budget_fraction``. Each is filled from the newest node back, holds at least the
    newest, and never half a node. Each node comes with its id, by which an agent may ask to open it.

    Args:
        connection: where; the caller's transaction.
        session_id: the session; an unknown one has an empty memory.
        token_budget: the size of the agent's context, in tokens by our estimator.
        settings: the two shares.
    """
    return str(
        connection.execute(
            sql.MEMORY,
            {
                "session_id": known_session_id(session_id),
                "token_budget": token_budget,
                "l1_budget_fraction": settings.l1_budget_fraction,
                "l2_budget_fraction": settings.l2_budget_fraction,
            },
        ).scalar_one()
    )
