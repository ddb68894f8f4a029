"""``mneme metrics``: a server that Prometheus reads."""

from typing import TYPE_CHECKING

import click

from worker.exits import or_exit

if TYPE_CHECKING:
    from sqlalchemy import Engine


@click.command(short_help="Serve metrics for Prometheus.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all of them."
)
@click.option(
    "--port", default=9464, show_default=True, type=click.IntRange(0, 65_535), help="The port; 0: one that is free."
)
@click.option("--once", is_flag=True, help="Print the metrics, and end.")
def metrics(host: str, port: int, once: bool) -> None:
    """Serve metrics at /metrics, computed from the rows: one such server tells of every worker.

    Gauges are read at each scrape; counters begin at nought when this begins. While Postgres is out of reach
    mneme_database_up is 0 and nothing else is told. /healthz answers as long as the process is well. Nobody is asked for a
    password, and nothing from a conversation is told: session ids neither. Alert rules and a dashboard are in deploy/.

    Examples:

      mneme metrics --host 0.0.0.0

      mneme metrics --once | grep waiting
    """
    from models.settings import get_settings
    from worker.commands.database import one_connection
    from worker.metrics import Metrics
    from worker.metrics_server import serve, text_of

    settings = or_exit(get_settings)
    if once:
        click.echo(text_of(Metrics(settings, or_exit(one_connection))), nl=False)
        return
    collector = Metrics(settings, or_exit(_engine))
    or_exit(lambda: serve(collector, host, port, told=lambda url: click.echo(f"metrics at {url}/metrics", err=True)))


def _engine() -> "Engine":
    """Return an engine of one connection; a database that is down is waited for, as by a worker.

    Raises:
        SettingsError: no database is set.
        SchemaError: the schema is missing or older than this code.
    """
    from models.engine import make_engine
    from models.migrate import check_schema_if_reachable
    from models.settings import get_settings

    engine = make_engine(get_settings().require_database_url(), pool_size=1)
    if away := check_schema_if_reachable(engine):
        click.echo(f"mneme: the schema could not be checked, going on: {away}", err=True)
    return engine
