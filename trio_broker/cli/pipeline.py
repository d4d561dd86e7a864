"""``trio-broker pipeline``: jobs that copy topics to tables and back, or report on them. Each starts a Spark session.

Their common options are in ``pipeline_options``.
"""

from __future__ import annotations

import click

from trio_broker.cli.command_group import LazyGroup

COMMANDS = {
    "export": "trio_broker.cli.pipeline_export:export_command",
    "etl": "trio_broker.cli.pipeline_etl:etl_command",
    "replay": "trio_broker.cli.pipeline_replay:replay_command",
    "restore": "trio_broker.cli.pipeline_restore:restore_command",
    "stats": "trio_broker.cli.pipeline_stats:stats_command",
}


@click.group(cls=LazyGroup, lives_in=COMMANDS)
def pipeline() -> None:
    """Copy topics to tables and back, or report on them, with Spark."""
