"""A Postgres for one benchmark, made as ``mneme up`` makes it, with the durability of its defaults, gone afterwards."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from models import make_engine, migrate
from models.urls import database_url
from worker.embedded.programs import find_postgres
from worker.embedded.servers import socket_directory, start_postgres


@contextmanager
def migrated_postgres() -> Iterator[Engine]:
    """Give an engine of an empty, migrated database."""
    with tempfile.TemporaryDirectory(prefix="mneme-benchmark-") as directory:
        data = Path(directory)
        options = {"shared_buffers": "256MB", "max_wal_size": "4GB", "work_mem": "32MB"}
        with socket_directory(data) as sockets:
            child, url = start_postgres(find_postgres("auto"), data, sockets, options)
            try:
                engine = make_engine(database_url(url))
                migrate(engine)
                yield engine
                engine.dispose()
            finally:
                child.stop(30)
