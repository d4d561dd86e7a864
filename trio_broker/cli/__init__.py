"""The ``trio-broker`` command. Each subcommand is in a module of its own, which is imported when it is called.

``start``, ``dev-cluster``, ``dump-log``, ``fsck``, ``import-kafka`` and ``export-kafka`` work with the data directories
of this machine. ``pipeline`` starts Spark jobs. The other commands send requests to a cluster, which may be any Kafka,
and import nothing of the broker.

Any failure ends a command with one line on standard error and exit code 1, a wrong option with exit code 2; ``fsck``
has further codes for what it finds.
"""

from __future__ import annotations

import click

from trio_broker import __version__
from trio_broker.cli.command_group import LazyGroup

COMMANDS = {
    "acls": "trio_broker.cli.acls:acls",
    "start": "trio_broker.cli.start:start",
    "dev-cluster": "trio_broker.cli.dev_cluster:dev_cluster",
    "produce": "trio_broker.cli.produce:produce_command",
    "consume": "trio_broker.cli.consume:consume_command",
    "topics": "trio_broker.cli.topics:topics",
    "groups": "trio_broker.cli.groups:groups",
    "transactions": "trio_broker.cli.transactions:transactions",
    "configs": "trio_broker.cli.configs:configs",
    "users": "trio_broker.cli.users:users",
    "cluster": "trio_broker.cli.cluster:cluster",
    "dump-log": "trio_broker.cli.dump_log:dump_log",
    "export-kafka": "trio_broker.cli.export_kafka:export_kafka",
    "fsck": "trio_broker.cli.fsck:fsck",
    "import-kafka": "trio_broker.cli.import_kafka:import_kafka",
    "pipeline": "trio_broker.cli.pipeline:pipeline",
    "quotas": "trio_broker.cli.quotas:quotas",
    "tokens": "trio_broker.cli.tokens:tokens",
    "ready": "trio_broker.cli.ready:ready",
    "version": "trio_broker.cli.version:version",
}


ALIASES = {
    "acl": "acls",
    "topic": "topics",
    "group": "groups",
    "transaction": "transactions",
    "config": "configs",
    "quota": "quotas",
    "token": "tokens",
    "user": "users",
}
"""The singular forms, which rpk uses."""


@click.group(
    cls=LazyGroup, lives_in=COMMANDS, aliases=ALIASES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="trio-broker", message="%(prog)s %(version)s")
def main() -> None:
    """A broker that every Kafka client takes for Kafka, and commands for any Kafka."""
