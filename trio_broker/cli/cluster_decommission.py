"""``trio-broker cluster decommission``: has a broker leave the cluster, and shows what it has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from trio_broker.cli.connecting import json_option, keeps_asking_cluster
from trio_broker.cli.consent import dry_run_option
from trio_broker.cli.failure import fail
from trio_broker.cli.output import Row, note, print_facts, print_json, print_table
from trio_broker.client.decommission import HeldTopic, decommission, held_topics, is_registered
from trio_broker.client.kafka_client import KafkaClient

POLL_SECONDS: Final = 1.0
"""Between two looks at what is left; the controller goes on once a second."""


@click.command("decommission")
@click.argument("broker", type=click.IntRange(min=0), metavar="BROKER")
@click.option("--cancel", is_flag=True, help="Have the broker stay. What has moved already does not come back.")
@click.option("--wait", is_flag=True, help="Return when the broker has left, and show meanwhile what is left.")
@dry_run_option
@json_option
@keeps_asking_cluster
def decommission_command(
    client: KafkaClient, broker: int, cancel: bool, wait: bool, dry_run: bool, as_json: bool
) -> None:
    """Have a broker leave: its replicas move to the others, then it stops and is unregistered.

    The controller goes on with it by itself, whatever becomes of this command. Called again, it shows what is left.
    """
    if cancel and wait:
        raise click.UsageError("--cancel and --wait exclude each other")
    if not is_registered(client, broker):
        fail(f"broker {broker} is not registered in this cluster")
    decommission(client, broker, cancel=cancel, validate_only=dry_run)
    held: Sequence[HeldTopic] = held_topics(client, broker)
    if wait and not dry_run:
        held = wait_until_left(client, broker, held)
    if as_json:
        print_json(document(broker, held, dry_run=dry_run, has_left=wait and not dry_run))
        return
    print_held(broker, held)
    if not dry_run and not cancel and not wait:
        note("it goes on by itself: the same command shows how far it is, --cancel ends it")


def wait_until_left(client: KafkaClient, broker: int, held: Sequence[HeldTopic]) -> Sequence[HeldTopic]:
    """Return when the broker is unregistered; say each time when fewer replicas are left."""
    known = -1
    while True:
        if (replicas := sum(each.partitions for each in held)) != known:
            known = replicas
            note(f"broker {broker} has {replicas} replicas left" if replicas else f"broker {broker} is empty and stops")
        client.deadline = client.deadline.restarted()
        client.deadline.sleep(POLL_SECONDS)
        # The brokers that were asked so far may be the one that has left.
        client.forget()
        if not is_registered(client, broker):
            note(f"broker {broker} has left the cluster")
            return ()
        held = held_topics(client, broker)


def topic_rows(held: Sequence[HeldTopic]) -> list[Row]:
    return [
        {"topic": each.name, "partitions": each.partitions, "leaders": each.leaders, "moving": each.moving}
        for each in held
    ]


def document(broker: int, held: Sequence[HeldTopic], *, dry_run: bool, has_left: bool) -> Row:
    """Return the JSON document of what a broker has left."""
    return {"broker": broker, "dry_run": dry_run, "has_left": has_left, **totals(held), "topics": topic_rows(held)}


def totals(held: Sequence[HeldTopic]) -> Row:
    return {
        "replicas": sum(each.partitions for each in held),
        "leaders": sum(each.leaders for each in held),
        "moving": sum(each.moving for each in held),
    }


def print_held(broker: int, held: Sequence[HeldTopic]) -> None:
    """Print a line of facts, and a table of the topics that the broker has."""
    print_facts({"broker": broker, **totals(held)})
    if held:
        columns = {"TOPIC": "topic", "PARTITIONS": "partitions", "LEADERS": "leaders", "MOVING": "moving"}
        print_table(columns, topic_rows(held))
