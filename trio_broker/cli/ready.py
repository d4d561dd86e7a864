"""``trio-broker ready``: whether a broker serves clients, for health checks of containers and scripts that wait."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from trio_broker.cli.failure import fail
from trio_broker.cli.start import DEFAULT_ADMIN_PORT, DEFAULT_HOST
from trio_broker.common.environment import environment_name, is_of_service
from trio_broker.common.host_port import host_port, parse_host_port

HTTPS = "https://"

TIMEOUT_SECONDS = 5.0
"""A broker that takes longer to say so does not serve."""

MAX_BYTES = 1000
"""The answer is one line."""

LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a broker is reached on its own machine that listens on all addresses."""


@click.command()
@click.option(
    "--admin",
    default=lambda: admin_address(os.environ),
    show_default="where the environment has it listen, else 127.0.0.1:9644",
    metavar="[https://]HOST:PORT",
    help="Where its admin page listens.",
)
def ready(admin: str) -> None:
    """Ask a broker's admin page whether clients are served; exit code 1, with the reason, if not.

    In a container the broker's own variables say where that is: TRIO_BROKER_ADMIN_LISTENER or TRIO_BROKER_ADMIN_PORT.
    TRIO_BROKER_SECURE or TRIO_BROKER_ADMIN_SECURITY_PROTOCOL say that it is asked by HTTPS.
    """
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPSHandler, ProxyHandler, build_opener

    url = f"{admin if admin.startswith(HTTPS) else f'http://{admin}'}/readyz"
    # Whose certificate it has is not looked at: nothing secret is asked or sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # No proxy: it is the broker of this machine, whatever HTTP_PROXY says.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            click.echo(answer.read(MAX_BYTES).decode(errors="replace").strip())
    except HTTPError as error:
        fail(error.read(MAX_BYTES).decode(errors="replace").strip())
    except (OSError, ValueError, HTTPException) as error:
        fail(f"nothing answers at {url}: {getattr(error, 'reason', error)}")


def admin_address(environment: Mapping[str, str]) -> str:
    """Where the admin page of a broker that is started with these variables is reached on its own machine.

    Raises:
        click.UsageError: a variable is no address or no port.
    """

    def given(key: str) -> str:
        name = environment_name(key)
        value = environment.get(name, "")
        return "" if is_of_service(name, value) else value

    default = host_port(given("admin.host") or DEFAULT_HOST, given("admin.port") or DEFAULT_ADMIN_PORT)
    try:
        host, port = parse_host_port(given("admin.listener") or default)
    except ValueError as error:
        raise click.UsageError(f"{error}") from None
    is_secure = given("admin.security.protocol") == "SSL" or given("secure")
    return f"{HTTPS if is_secure else ''}{host_port(LOOPBACK.get(host, host), port)}"
