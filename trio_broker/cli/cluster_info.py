"""``trio-broker cluster info``: the brokers of a cluster, which may be any Kafka, their API versions, its features."""

from __future__ import annotations

from collections.abc import Collection

import click

from kafka_wire.apis import api_name
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, print_facts, print_json, print_table
from trio_broker.client.cluster import BrokerDescription, ClusterDescription, describe_cluster
from trio_broker.client.kafka_client import KafkaClient


@click.command("info")
@click.option("--apis", is_flag=True, help="Also show the versions of every API, by broker.")
@json_option
@with_client
def info_command(client: KafkaClient, apis: bool, as_json: bool) -> None:
    """Show the cluster's id, its brokers, their features and the versions of the APIs that they serve."""
    described = describe_cluster(client)
    failures = Failures()
    for broker in described.brokers:
        if broker.problem is not None:
            failures.add(broker.problem)
    if as_json:
        print_json(document(described))
    else:
        print_cluster(described, apis)
    failures.exit()


def document(described: ClusterDescription) -> Row:
    """Return the JSON document of a cluster."""
    return {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id if described.controller_id >= 0 else None,
        "brokers": [
            {
                **broker_row(broker, described.controller_id),
                "features": feature_rows([broker]),
                "apis": [
                    {"key": key, "name": api_name(key), "min_version": served.low, "max_version": served.high}
                    for key, served in sorted(broker.served.items())
                ],
            }
            for broker in described.brokers
        ],
    }


def broker_row(broker: BrokerDescription, controller_id: int) -> Row:
    """Return the row of one broker."""
    return {
        "broker": broker.node.node_id,
        "address": str(broker.node.address),
        "rack": broker.node.rack,
        "controller": broker.node.node_id == controller_id,
    }


def feature_rows(brokers: Collection[BrokerDescription]) -> list[Row]:
    """Return the features of some brokers; a feature has one row if all of them report the same versions."""
    rows: dict[tuple[object, ...], Row] = {}
    for broker in brokers:
        for each in broker.features:
            row = {
                "feature": each.name,
                "min_version": each.min_version,
                "max_version": each.max_version,
                "finalized_version": each.finalized_version,
            }
            # The values are the key, so brokers that differ, as during a rolling upgrade, get a row each.
            rows.setdefault(tuple(row.values()), row)
    return [rows[values] for values in sorted(rows, key=str)]


def print_cluster(described: ClusterDescription, apis: bool) -> None:
    """Print a line of facts, and tables of brokers, features and, if asked for, APIs."""
    print_facts({"cluster": described.cluster_id, "brokers": len(described.brokers)})
    brokers = [broker_row(each, described.controller_id) for each in described.brokers]
    print_table({"BROKER": "broker", "ADDRESS": "address", "RACK": "rack", "CONTROLLER": "controller"}, brokers)
    if features := feature_rows(described.brokers):
        click.echo()
        columns = {"FEATURE": "feature", "FROM": "min_version", "TO": "max_version", "IN USE": "finalized_version"}
        print_table(columns, features)
    if apis:
        click.echo()
        print_apis(described.brokers)


def print_apis(brokers: Collection[BrokerDescription]) -> None:
    """Print a table with a row for each API and a column for each broker."""
    keys = sorted({key for broker in brokers for key in broker.served})
    columns = {"API": "api", "KEY": "key"} | {f"BROKER {each.node.node_id}": str(each.node.node_id) for each in brokers}
    rows = [
        {"api": api_name(key), "key": key}
        | {str(each.node.node_id): str(each.served[key]) for each in brokers if key in each.served}
        for key in keys
    ]
    print_table(columns, rows)
