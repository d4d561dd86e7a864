"""``trio-broker version``."""

from __future__ import annotations

import click

from trio_broker import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"trio-broker {__version__}")
