"""Kombu's channel of Redis, made to survive the end of its broker while jobs are under way.

A channel whose connection was lost and closed is still asked to acknowledge the jobs that end afterwards, and to give
back those that did not. Kombu (5.7) then looks for the address of a connection that is gone, and its ``AttributeError``,
which nobody takes for what it is, ends the worker. As an error of the connection it is expected and logged.
"""

from typing import Any

from kombu.transport import redis as transport
from redis.exceptions import ConnectionError as RedisConnectionError


class Channel(transport.Channel):
    """A channel that says that its connection is closed."""

    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise RedisConnectionError("the connection of this channel is closed")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]


def use() -> None:
    """Have this process's connections to Redis use it."""
    transport.Transport.Channel = Channel
