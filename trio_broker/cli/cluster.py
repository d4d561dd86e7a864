"""``trio-broker cluster``: the cluster and its brokers, and how a broker joins and leaves one.

Each command is in a module that is imported when it is called: some know the broker, and others only its clients.
"""

from __future__ import annotations

import click

from trio_broker.cli.command_group import LazyGroup

COMMANDS = {
    "info": "trio_broker.cli.cluster_info:info_command",
    "status": "trio_broker.cli.cluster_status:status_command",
    "join": "trio_broker.cli.cluster_membership:join_command",
    "leave": "trio_broker.cli.cluster_membership:leave_command",
    "decommission": "trio_broker.cli.cluster_decommission:decommission_command",
    "elect-leaders": "trio_broker.cli.replicas:elect_leaders_command",
    "unregister": "trio_broker.cli.replicas:unregister_command",
}


@click.group(cls=LazyGroup, lives_in=COMMANDS)
def cluster() -> None:
    """Show the cluster and its brokers, elect leaders, have a broker join or leave, and take one out."""
