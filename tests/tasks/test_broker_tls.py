"""A broker behind TLS: its certificate is checked unless the URL says otherwise."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from mneme_client import broker as client_broker
from sqlalchemy import Engine

from models import BrokerError, load_settings
from tasks.broker import publish
from tests.support.processes import celery, celery_worker, process, run, wait_until
from tests.support.servers import free_port, redis_program
from tests.support.snapshots import active, write

_CERTIFICATE = [
    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem",
]  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a Redis behind TLS, and the certificate that vouches for it."""
    place = tmp_path_factory.mktemp("tls")
    subprocess.run(_CERTIFICATE, cwd=place, check=True, capture_output=True)
    port = free_port()
    tls = [
        "--tls-port",
        str(port),
        "--tls-cert-file",
        "cert.pem",
        "--tls-key-file",
        "key.pem",
        "--tls-auth-clients",
        "no",
    ]
    command = [redis_program(), "--port", "0", "--save", "", *tls]
    with process(command, {}, place / "redis.log", cwd=place) as server:
        wait_until(lambda: "Ready to accept" in server.log or server.popen.poll() is not None)
        if server.popen.poll() is not None:
            pytest.skip("this Redis was built without TLS")
        yield f"rediss://127.0.0.1:{port}/0", place / "cert.pem"


def test_a_certificate_that_nobody_vouches_for_is_refused(secured: tuple[str, Path], environ: dict[str, str]) -> None:
    url, _ = secured
    with pytest.raises(BrokerError, match="CERTIFICATE_VERIFY_FAILED"):
        publish(load_settings(environ | {"REDIS_URL": url}), "s")
    with client_broker.connect(url) as connection, pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        client_broker.send(connection, "s")


def test_with_its_authority_in_the_url_everything_is_reached(
    secured: tuple[str, Path], environ: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    plain, certificate = secured
    url = f"{plain}?ssl_ca_certs={certificate}"
    environ |= {"REDIS_URL": url}
    write(engine, "s", range(5))
    with client_broker.connect(url) as connection:
        client_broker.send(connection, "s")
    with celery_worker(environ, tmp_path / "worker.log") as worker:
        wait_until(lambda: [node.level for node in active(engine, "s")] == [2], 60, "the fold")
        assert "insecure" not in worker.log
    flower = celery("flower", "--port=0", "--address=127.0.0.1")
    with process(flower, environ | {"FLOWER_BASIC_AUTH": "u:p"}, tmp_path / "flower.log") as watching:
        watching.wait_for_log("Connected to rediss")
        assert "Traceback" not in watching.log


def test_an_option_that_there_is_not_is_one_sentence(environ: dict[str, str]) -> None:
    done = run(celery("worker"), environ | {"REDIS_URL": "rediss://:secret@h/0?ssl_cert_reqs=perhaps"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mneme: broker.url: ssl_cert_reqs: expected CERT_REQUIRED, CERT_OPTIONAL or CERT_NONE\n"


def test_a_file_that_cannot_be_read_is_no_broker_that_is_away(environ: dict[str, str]) -> None:
    done = run(celery("worker"), environ | {"REDIS_URL": "rediss://h/0?ssl_ca_certs=/nonexistent/ca.pem"})
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "mneme: broker.url: ssl_ca_certs: /nonexistent/ca.pem cannot be read: No such file or directory\n"
    )


def test_without_a_check_only_who_says_so(secured: tuple[str, Path], environ: dict[str, str]) -> None:
    url = f"{secured[0]}?ssl_cert_reqs=CERT_NONE"
    # A process of its own: Kombu's pools do not tell two ways to the same broker apart.
    publishing = "from models import get_settings; from tasks.broker import publish; publish(get_settings(), 's')"
    done = run([sys.executable, "-c", publishing], environ | {"REDIS_URL": url})
    assert done.returncode == 0, done.stderr
    with redis.Redis.from_url(secured[0], ssl_cert_reqs="none") as client:
        assert client.llen("mneme") >= 1
