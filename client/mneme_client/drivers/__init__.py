"""One module for each kind of connection. None is imported before the main app has imported that library itself."""

from mneme_client.drivers.choice import AnyConnection, AsyncConnection, choose, choose_async

__all__ = ["AnyConnection", "AsyncConnection", "choose", "choose_async"]
