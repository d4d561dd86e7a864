"""The topics that a pipeline writes to: checks that they exist with enough partitions, or creates them.

That is done before anything is written: a topic that lacks a partition would stop the job in its middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_topics import BROKER_DEFAULT
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topic_changes import create_topic
from trio_broker.client.topics import find_topics
from trio_broker.spark.producer.target_topic import TargetError, no_such_topic

TIMEOUT_SECONDS: Final = 60.0
"""For finding or creating topics; the default of Kafka's admin client."""


CREATE_FIRST: Final = "Create it first: trio-broker topics create."

CREATE_TOPIC_OPTION: Final = "The option --create-topic creates it."


class Partitions(Enum):
    """Which partition a record goes to."""

    KEEP = "keep"
    """The partition it had."""
    KEY = "key"
    """The partition of its key, by the hash of Kafka's Java client; records without a key are spread."""


@attrs.frozen
class NewTopics:
    """How missing topics are created. None means as many partitions as are needed, and the broker's default factor."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = attrs.field(factory=dict)


def is_same_cluster(one: ConnectionSettings, other: ConnectionSettings) -> bool:
    """Whether two ways lead to one cluster, by the id that it has.

    Raises:
        ClientError: a cluster does not answer.
    """
    if set(one.bootstrap) & set(other.bootstrap):
        return True
    ids = [_cluster_id(one), _cluster_id(other)]
    return ids[0] == ids[1] and None not in ids


def _cluster_id(connection: ConnectionSettings) -> str | None:
    with KafkaClient(connection, Deadline(TIMEOUT_SECONDS)) as client:
        return client.attempt(client.brokers).cluster_id


def prepare_topics(
    connection: ConnectionSettings,
    needed: Mapping[str, int],
    *,
    new: NewTopics | None = None,
    dry_run: bool = False,
    remedy: str = CREATE_FIRST,
) -> list[str]:
    """Check that each topic has the partitions needed, and create missing topics; return the names of the new ones.

    ``needed`` has the least number of partitions of each topic, 0 for any. Without ``new`` no topic is created, and
    ``remedy`` says what the user can do. In a dry run the broker only validates the creation.

    Raises:
        TargetError: a topic is missing, or has too few partitions.
        ClientError: the cluster does not answer, or refuses.
    """
    made: list[str] = []
    with KafkaClient(connection, Deadline(TIMEOUT_SECONDS)) as client:
        for name, topic in find_topics(client, sorted(needed)).items():
            if not isinstance(topic, Refused):
                require_partitions(name, len(topic.partitions), needed[name])
            elif topic.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic
            elif new is None:
                raise no_such_topic(client, name, remedy)
            else:
                create(client, name, needed[name], new, dry_run=dry_run)
                made.append(name)
    return made


def create(client: KafkaClient, name: str, needed: int, new: NewTopics, *, dry_run: bool) -> None:
    """Create a topic.

    Raises:
        TargetError: it would have too few partitions.
        ClientError: the cluster refuses.
    """
    if new.partitions is not None:
        require_partitions(name, new.partitions, needed)
    create_topic(
        client,
        name,
        partitions=new.partitions or needed or BROKER_DEFAULT,
        replication_factor=new.replication_factor or BROKER_DEFAULT,
        configs=new.configs,
        validate_only=dry_run,
    )


def require_partitions(name: str, found: int, needed: int) -> None:
    """Raise ``TargetError`` unless ``found`` partitions are enough."""
    if found < needed:
        raise TargetError(
            f"topic {name!r} has {found} partitions, and records of partition {needed - 1} are to go to the same;"
            " let their keys choose, or give it more partitions"
        )
