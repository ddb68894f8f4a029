"""One image and one topology for all tests that need them: building them takes half a minute."""

from collections.abc import Iterator

import pytest

from tests.deploy.topology import ROLES, Topology, topology
from tests.support.processes import wait_until


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    with topology(tmp_path_factory.mktemp("topology"), "extract") as made:
        for role in ("redis", *ROLES):
            wait_until(lambda role=role: made.is_healthy(role), 60, f"{role} to be healthy")  # type: ignore[misc]
        yield made
