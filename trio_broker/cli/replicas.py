"""``trio-broker cluster elect-leaders``, ``unregister`` and ``trio-broker topics reassign``: replicas of any Kafka.

Source: Kafka's LeaderElectionCommand, ReassignPartitionsCommand and ClusterTool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from kafka_wire.error_codes import ErrorCode
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, dry_run_option, is_agreed, needs_consent
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, note, print_facts, print_json, print_table
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.replicas import elect_preferred, reassign, unregister_broker
from trio_broker.client.topics import TopicDescription, describe_topics, list_topics
from trio_broker.common.topic_partition import TopicPartition


def target(text: str) -> tuple[int, list[int]]:
    """A partition and the brokers that are to have it, from ``0=1,2,3``.

    Raises:
        click.BadParameter: it is not of that form.
    """
    partition, _, brokers = text.partition("=")
    try:
        return int(partition), [int(each) for each in brokers.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not of the form 0=1,2,3: a partition and its brokers") from None


# --- Elections ---


@click.command("elect-leaders")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@dry_run_option
@json_option
@with_client
def elect_leaders_command(client: KafkaClient, topics: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Have partitions led by their preferred leaders again, where those are in sync: of all topics, or those named."""
    described = list(describe_topics(client, topics).values()) if topics else list_topics(client)
    wanted = [row for topic in described for row in imbalanced(topic)]
    electable = [TopicPartition(row["topic"], row["partition"]) for row in wanted if row["preferred_in_sync"]]
    outcomes = elect_preferred(client, electable) if electable and not dry_run else {}
    failures = Failures()
    for row in wanted:
        refused = outcomes.get(TopicPartition(row["topic"], row["partition"]))
        row["error"] = refused.name if refused is not None else None
        if refused is not None:
            failures.add(refused)
    if as_json:
        print_json({"dry_run": dry_run, "partitions": wanted})
    elif wanted:
        columns = {"TOPIC": "topic", "PARTITION": "partition", "LEADER": "leader", "PREFERRED": "preferred"}
        print_table(columns | {"IN SYNC": "preferred_in_sync", "ERROR": "error"}, wanted)
    else:
        note("every partition is led by its preferred leader")
    failures.exit()


def imbalanced(topic: TopicDescription) -> list[dict[str, Any]]:
    """A row for each partition that another broker leads than the preferred one."""
    return [
        {
            "topic": topic.name,
            "partition": each.index,
            "leader": each.leader_id,
            "preferred": each.replicas[0],
            "preferred_in_sync": each.replicas[0] in each.in_sync_replicas,
        }
        for each in topic.partitions
        if each.replicas and each.leader_id != each.replicas[0]
    ]


# --- Moves ---


@click.command("reassign")
@click.argument("topic")
@click.argument("targets", nargs=-1, type=target, metavar="[PARTITION=BROKER,BROKER]...")
@click.option("--cancel", is_flag=True, help="End the moves of the topic's partitions that are under way.")
@dry_run_option
@json_option
@with_client
def reassign_command(
    client: KafkaClient,
    topic: str,
    targets: Sequence[tuple[int, list[int]]],
    cancel: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move partitions to other brokers, the preferred leader first: they are copied, and given up where they were.

    It ends before they have moved; topics describe shows how far they are.
    """
    if cancel == bool(targets):
        raise click.UsageError("name partitions with their brokers, as 0=1,2,3, or --cancel")
    described = describe_topics(client, [topic])[topic]
    before = {TopicPartition(topic, each.index): each.replicas for each in described.partitions}
    wanted: dict[TopicPartition, Sequence[int] | None] = (
        dict.fromkeys(before) if cancel else {TopicPartition(topic, index): brokers for index, brokers in targets}
    )
    if unknown := [place for place in wanted if place not in before]:
        raise click.UsageError(f"there is no {unknown[0]}")
    outcomes: Mapping[TopicPartition, Refused | None] = {} if dry_run else reassign(client, wanted)
    rows: list[Row] = []
    failures = Failures()
    for place, brokers in wanted.items():
        refused = outcomes.get(place)
        if cancel and refused is not None and refused.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            continue
        if refused is not None:
            failures.add(refused)
        rows.append(
            {
                "topic": topic,
                "partition": place.partition,
                "replicas": list(before[place]),
                "target": None if brokers is None else list(brokers),
                "error": None if refused is None else refused.name,
            }
        )
    if as_json:
        print_json({"dry_run": dry_run, "partitions": rows})
    else:
        shown = [{**row, "replicas": listed(row["replicas"]), "target": listed(row["target"])} for row in rows]
        columns = {"TOPIC": "topic", "PARTITION": "partition", "REPLICAS": "replicas", "TARGET": "target"}
        print_table(columns | {"ERROR": "error"}, shown)
    failures.exit()


def listed(broker_ids: Sequence[int] | None) -> str | None:
    return None if broker_ids is None else ",".join(map(str, broker_ids))


# --- Brokers ---


@click.command("unregister")
@click.argument("broker_id", type=int)
@needs_consent
@json_option
@with_client
def unregister_command(client: KafkaClient, broker_id: int, consent: Consent, as_json: bool) -> None:
    """Take a broker that is gone for good out of the cluster, after asking. Its replicas stay assigned to it."""
    held = sum(broker_id in each.replicas for topic in list_topics(client) for each in topic.partitions)
    if consent is Consent.ASK:
        note(f"broker {broker_id} has {held} replicas, which stay assigned to it")
    executed = is_agreed(consent, f"Take broker {broker_id} out of the cluster for good?")
    if executed:
        unregister_broker(client, broker_id)
    if as_json:
        print_json({"dry_run": not executed, "broker": broker_id, "replicas": held})
    else:
        print_facts({f"broker {broker_id}": "unregistered" if executed else f"would leave {held} replicas"})
