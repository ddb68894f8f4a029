"""What one delivery of a job did."""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Report:
    """What came of a job.

    ``level`` is the level being made, ``uncovered`` what was counted at the beginning, ``node`` the id of the new node.
    ``outcome`` is one of ``folded``, ``declined``, ``below_threshold``, ``already_running``, ``backing_off``,
    ``paused``, ``held``, ``lost_lease``; a failure is no report but an exception.
    """

    outcome: str
    session_id: str
    level: int
    uncovered: int
    threshold: int
    node: str | None = None
    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    summary: str | None = field(default=None, repr=False)

    def as_result(self) -> dict[str, object]:
        """Return what Celery and Flower may see: everything but the summary."""
        return {key: value for key, value in asdict(self).items() if key != "summary"}
