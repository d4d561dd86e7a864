"""``trio-broker cluster status``: who is the controller, how far each broker has read the metadata, what is not served.

Brokers are asked, which may be any Kafka's; or etcd, if it is named, which answers where no broker runs. The exit code
is 1 if there is no controller, or any partition without a leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trio_broker.cli.cluster_membership import carried_out, with_settings
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, print_facts, print_json, print_table
from trio_broker.client.cluster_status import describe_status
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.cluster_status import ClusterStatus

if TYPE_CHECKING:
    from trio_broker.config.broker_config import BrokerConfig


@click.command("status")
@json_option
@with_client
@with_settings
def status_command(config: BrokerConfig, client: KafkaClient, as_json: bool) -> None:
    """Show the controller, the brokers and what is not served; by its brokers, or by etcd where that is named."""
    status = status_by(config, client)
    if as_json:
        print_json(document(status))
    else:
        print_status(status)
    failures = Failures()
    for problem in status.problems:
        failures.add(problem)
    failures.exit()


def status_by(config: BrokerConfig, client: KafkaClient) -> ClusterStatus:
    """Ask etcd where ``metadata.store`` names it, and else the brokers."""
    from trio_broker.config.metadata_store_config import LOCAL

    if config.metadata_store.metadata_store == LOCAL:
        return describe_status(client)
    from trio_broker.cluster.etcd.status import etcd_status

    status: ClusterStatus = carried_out(lambda runtime: etcd_status(config.metadata_store, runtime))
    return status


def document(status: ClusterStatus) -> Row:
    """Return the JSON document of a status."""
    return {
        "cluster_id": status.cluster_id,
        "store": status.store,
        "controller": status.controller_id,
        "epoch": status.epoch,
        "end_offset": status.end_offset,
        "revision": status.revision,
        "stored_bytes": None if status.size is None else status.size.stored_bytes,
        "max_stored_bytes": None if status.size is None else status.size.max_bytes,
        "brokers": broker_rows(status),
        "partitions": status.partitions,
        "under_replicated": status.under_replicated,
        "unavailable": [{"topic": each.topic, "partition": each.partition} for each in status.unavailable],
    }


def broker_rows(status: ClusterStatus) -> list[Row]:
    """Return a row for each broker."""
    return [
        {
            "broker": each.broker_id,
            "address": each.address,
            "state": each.state.value,
            "behind": each.behind,
            "controller": each.broker_id == status.controller_id,
        }
        for each in status.brokers
    ]


def print_status(status: ClusterStatus) -> None:
    """Print lines of facts, a table of the brokers, and what is unavailable."""
    facts = {"cluster": status.cluster_id, "store": status.store, "controller": status.controller_id}
    print_facts({**facts, "epoch": status.epoch, "offset": status.end_offset})
    if status.size is not None:
        print_facts(
            {"revision": status.revision, "bytes": status.size.stored_bytes, "of at most": status.size.max_bytes}
        )
    print_facts(
        {
            "partitions": status.partitions,
            "unavailable": len(status.unavailable),
            "under-replicated": status.under_replicated,
        }
    )
    columns = {"BROKER": "broker", "ADDRESS": "address", "STATE": "state", "BEHIND": "behind"}
    print_table({**columns, "CONTROLLER": "controller"}, broker_rows(status))
