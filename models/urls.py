"""URLs as people write them, made into what the drivers understand; and shown without their passwords."""

import re
from urllib.parse import SplitResult, unquote, urlsplit

from psycopg.pq import Conninfo
from sqlalchemy import make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_KNOWN_OPTIONS = {option.keyword.decode() for option in Conninfo.get_defaults()}
_CREDENTIALS = re.compile(r"(?P<before>://[^/?#]*?:)(?P<password>.*)(?P<after>@)")
_SECRET_QUERY = re.compile(r"(?i)([?&](?:(?:ssl_?)?password|passwd|secret|token|api[-_]?key)=)([^&\s]*)")
_DATABASE = re.compile(r"postgres(?:ql)?(?:\+\w+)?://(?P<rest>.*)", re.DOTALL)


def redact(text: str) -> str:
    """Return a URL with its password replaced; what does not look like a URL is not shown at all."""
    if "://" not in text:
        return "(not shown)"
    return _SECRET_QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\g<before>***\g<after>", text))


def passwords(url: str) -> set[str]:
    """Return the passwords of a URL, as they stand in it and as they are meant; empty when there is none."""
    match = _CREDENTIALS.search(url)
    found = [match["password"] if match else "", *(secret for _, secret in _SECRET_QUERY.findall(url))]
    return {form for password in found if password for form in (password, unquote(password))}


def has_password(url: str) -> bool:
    """Say whether the URL carries a password."""
    return "://" in url and redact(url) != url


def database_url(text: str) -> str:
    """Return a Postgres URL for SQLAlchemy and psycopg 3, from ``postgres://`` or ``postgresql://``, with any driver.

    The password may hold ``@``, ``:`` and ``%``, percent-encoded or not: the last ``@`` before the query ends it.

    Raises:
        ValueError: it is no such URL, or names no database.
    """
    match = _DATABASE.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a URL such as postgresql://user:password@host:5432/name")
    address, question, query = match["rest"].partition("?")
    credentials, _, place = address.rpartition("@")
    user, _, password = credentials.partition(":")
    try:
        url = make_url(f"postgresql+psycopg://{place}{question}{query}")
        url = url.set(username=unquote(user) or None, password=unquote(password) or None)
    except (ArgumentError, ValueError):
        raise ValueError("expected a URL such as postgresql://user:password@host:5432/name") from None
    if url.host and url.host.lower().startswith("%2f"):  # libpq's other way of naming the directory of a socket
        query = {**url.query, "host": unquote(url.host)}
        url = URL.create(url.drivername, url.username, url.password, None, url.port, url.database, query)
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise ValueError("expected a port between 1 and 65535")
    if not url.database and "dbname" not in url.query:
        raise ValueError("expected the name of a database at the end of the URL")
    _check_options(url)
    return url.render_as_string(hide_password=False)


def _check_options(url: URL) -> None:
    """Refuse what libpq would refuse at the first connection, when it looks like a database that is down."""
    unknown = sorted(set(url.query) - _KNOWN_OPTIONS)
    if unknown:
        raise ValueError(f"expected only options that libpq knows, not {', '.join(unknown)}")
    if url.query.get("sslmode", "prefer") not in _SSL_MODES:
        raise ValueError(f"expected sslmode to be one of {', '.join(_SSL_MODES)}")


def broker_url(text: str) -> str:
    """Return the URL of a Redis-compatible server.

    Raises:
        ValueError: it is no such URL.
    """
    parts = _split(text)
    if parts is not None and "ssl_password" in parts.query:
        raise ValueError("expected a TLS key without a password: Flower would show ssl_password")
    if parts is not None and (
        (parts.scheme in ("redis", "rediss") and parts.hostname and re.fullmatch(r"/?|/\d{1,4}", parts.path))
        or (parts.scheme == "redis+socket" and parts.path.strip("/"))
    ):
        return text.strip()
    raise ValueError("expected a URL such as redis://host:6379/0, rediss://host:6379/0 or redis+socket:///path/to.sock")


def http_url(text: str) -> str:
    """Return the URL of an HTTP endpoint.

    Raises:
        ValueError: it is no such URL.
    """
    parts = _split(text)
    if parts is not None and parts.scheme in ("http", "https") and parts.hostname:
        return text.strip()
    raise ValueError("expected a URL such as https://api.example.com/v1")


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text.strip())
        return None if parts.port == 0 else parts
    except ValueError:  # a port that is no number, half an IPv6 address
        return None
