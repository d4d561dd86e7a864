"""``trio-broker ready``: whether a broker serves clients, for health checks of containers and scripts that wait."""

from __future__ import annotations

import click

from trio_broker.cli.failure import fail

TIMEOUT_SECONDS = 5.0
"""A broker that takes longer to say so does not serve."""

MAX_BYTES = 1000
"""The answer is one line."""


@click.command()
@click.option(
    "--admin", default="127.0.0.1:9644", show_default=True, metavar="HOST:PORT", help="Where its admin page listens."
)
def ready(admin: str) -> None:
    """Ask a broker's admin page whether clients are served; exit code 1, with the reason, if not."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    try:
        # No proxy: it is the broker of this machine, whatever HTTP_PROXY says.
        with build_opener(ProxyHandler({})).open(f"http://{admin}/readyz", timeout=TIMEOUT_SECONDS) as answer:
            click.echo(answer.read(MAX_BYTES).decode(errors="replace").strip())
    except HTTPError as error:
        fail(error.read(MAX_BYTES).decode(errors="replace").strip())
    except (OSError, ValueError, HTTPException) as error:
        fail(f"nothing answers at http://{admin}/readyz: {getattr(error, 'reason', error)}")
