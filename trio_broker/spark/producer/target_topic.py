"""The topic that rows are written to: found, created where that is wanted, or an error with the name that was meant.

A broker with ``auto.create.topics.enable``, which is Kafka's default, creates whatever topic a producer asks it about,
a misspelt one as well. So the sink asks without that (``allow.auto.create.topics``), and creates a topic by itself if
the user wants it.

Source: docs/spark-sink.md; KIP-361, which brought ``allow.auto.create.topics``; KIP-464 for the brokers' defaults.
"""

from __future__ import annotations

import contextlib
from difflib import get_close_matches
from typing import Final

from trio_broker.client.deadline import attempts
from trio_broker.client.errors import ClientError, UnknownTopic
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.producer.batch_producer import BatchProducer, Timer
from trio_broker.client.producer.producer_metadata import MISSING_TOPIC_SECONDS
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.topic_changes import ensure_topic
from trio_broker.client.topics import list_topics
from trio_broker.spark.errors import SparkJobError

NEW_TOPIC_SECONDS: Final = 1.0
"""How long a topic may be missing that is not to be created: another program may have created it a moment ago, and not
every broker knows of it yet."""


MOST_NEAR_NAMES: Final = 3
"""Topics are often named alike but for a number or a date, and all of them would not fit into a line."""

CREATION: Final = "The option createTopics=true lets the sink create it."


class TargetError(SparkJobError):
    """A topic cannot be written to as it is."""


def require_topic(settings: ProducerSettings, name: str, *, create: bool) -> None:
    """Make sure that a topic exists, in the driver, before any task starts; errors are those of ``partition_count``."""
    with BatchProducer(settings) as producer:
        partition_count(producer, name, create=create)


def partition_count(producer: BatchProducer, name: str, *, create: bool, timer: Timer | None = None) -> int:
    """Return the number of a topic's partitions. With ``create`` a missing topic is created, as the brokers' defaults
    have it.

    Raises:
        TargetError: the topic does not exist.
        WriteFailed: it may not be used, or no broker answers.
        ClientError: it cannot be created.
    """
    try:
        return producer.partition_count(name)
    except UnknownTopic:
        if create:
            _create(producer.settings, name)
    deadline = (timer or Timer()).deadline(MISSING_TOPIC_SECONDS if create else NEW_TOPIC_SECONDS)
    for _ in attempts(deadline):
        with contextlib.suppress(UnknownTopic):
            return producer.partition_count(name)
    with _client(producer.settings) as client:
        raise no_such_topic(client, name, CREATION)


def no_such_topic(client: KafkaClient, name: str, remedy: str) -> TargetError:
    """Return the error about a topic that is missing, with the names of topics that may be meant, and what to do."""
    try:
        names = [topic.name for topic in list_topics(client) if not topic.is_internal]
    # The error about the topic says more than that of a look-up which only serves its text.
    except ClientError:
        names = []
    nearest = " or ".join(map(repr, get_close_matches(name, names, MOST_NEAR_NAMES)))
    return TargetError(f"topic {name!r} does not exist{f'; did you mean {nearest}?' if nearest else '.'} {remedy}")


def _create(settings: ProducerSettings, name: str) -> None:
    with _client(settings) as client:
        # Another task that writes to the same topic may be faster.
        ensure_topic(client, name, configs={})


def _client(settings: ProducerSettings) -> KafkaClient:
    return KafkaClient(settings.connection, Timer().deadline(settings.request_timeout_ms / 1000))
