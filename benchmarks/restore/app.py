"""A main app with a log of its own: what it was told is written, it can write again."""

import threading
import time
from dataclasses import dataclass, field

import psycopg

_WRITE = "select mneme.write_l1_snapshot(%s, %s, %s, %s)"


@dataclass
class App:
    """Writes in plain SQL by a role that has what ``mneme grant`` gives; tells no broker."""

    url: str
    sessions: int
    every_seconds: float
    log: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Write on from where it was, until told to stop or until the database is gone."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._write_on, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def write_again(self) -> tuple[int, int]:
        """Write everything that it knows once more; return how much was there, under its id, and how much was not."""
        there = 0
        with psycopg.connect(self.url, autocommit=True) as connection:
            for key, (content, was) in list(self.log.items()):
                now = self._write(connection, *key, content)
                there += now == was
                self.log[key] = content, now
        return there, len(self.log) - there

    def _write_on(self) -> None:
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                while not self._stop.is_set():
                    position = len(self.log)
                    key = (f"app-{position % self.sessions}", position // self.sessions)
                    content = f"Snapshot {key[1]} of {key[0]}: " + "Zoë chose 東京 over €120 «for now» 🧪 " * 8
                    self.log[key] = content, self._write(connection, *key, content)
                    time.sleep(self.every_seconds)
        except psycopg.OperationalError:
            pass  # the host is lost; what was not acknowledged is not in the log
        except psycopg.Error as error:
            self.refused.append(str(error))

    @staticmethod
    def _write(connection: "psycopg.Connection[tuple[object, ...]]", session_id: str, number: int, content: str) -> str:
        row = connection.execute(_WRITE, [session_id, number * 10 + 1, number * 10 + 10, content]).fetchone()
        return str(row and row[0])
