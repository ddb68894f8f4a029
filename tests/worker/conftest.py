from collections.abc import Iterator

import pytest

from tests.support.model_server import ModelServer, model_server


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def worker_environ(environ: dict[str, str], server: ModelServer) -> dict[str, str]:
    """A worker that asks the test's own endpoint, with a short lease and a quick sweep."""
    return environ | {
        "MNEME_LLM__MODEL": "m",
        "OPENAI_BASE_URL": server.url,
        "MNEME_LLM__TIMEOUT_SECONDS": "3",
        "MNEME_MNEME__LEASE_SECONDS": "6",
        "MNEME_SCHEDULES__SWEEP_SECONDS": "1",
        "MNEME_SCHEDULES__GRACE_SECONDS": "1",
        "MNEME_SCHEDULES__REQUEUE_SECONDS": "1",
    }
