"""The web server of the metrics: two paths, no framework."""

import errno
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.registry import Collector

from models.errors import MnemeError, SettingsError
from worker import logs


class _Quiet(WSGIRequestHandler):
    """Logs no request: there is one every few seconds, for ever."""

    # A client that sends nothing would hold a thread until it goes away.
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def text_of(collector: Collector) -> str:
    """Return the metrics as Prometheus reads them."""
    return generate_latest(_registry(collector)).decode()


def serve(collector: Collector, host: str, port: int, *, told: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        collector: what is served.
        host: the address to listen on.
        port: the port; 0 takes one that is free.
        told: of the URL, once it answers.

    Raises:
        SettingsError: the address cannot be listened on.
        MnemeError: somebody else listens there, for now.
        KeyboardInterrupt: SIGINT.
    """
    logs.set_up()
    try:
        server = make_server(host, port, _app(collector), ThreadingWSGIServer, handler_class=_Quiet)
    except OSError as error:
        # Whoever starts us anew may find it free.
        raised = MnemeError if error.errno == errno.EADDRINUSE else SettingsError
        raise raised(f"{host}:{port}: it cannot be listened on: {error.strerror}") from None
    # A container's first process gets no signal that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        told(f"http://{host}:{server.server_port}")
        server.serve_forever()


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _app(collector: Collector) -> Any:
    metrics = make_wsgi_app(_registry(collector))

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return metrics(environ, start_response)  # type: ignore[no-any-return]
        status, body = ("200 OK", b"ok\n") if path == "/healthz" else ("404 Not Found", b"see /metrics and /healthz\n")
        start_response(status, [("Content-Type", "text/plain")])
        return [body]

    return app
