"""The partitions and offsets of a Kafka cluster, for the planner of a job.

Requested in the driver, once for a batch and at every trigger of a stream, over connections that are kept in between.
All partitions of a leader are in one request. Temporary failures are retried a few times, within a minute at most; then
the job ends with one line that names the broker that did not answer.

Partitions and topics that are gone are left out of a result, because the planner decides what that means. Nothing else
is left out: a partition whose leader does not answer is an error, not a partition without records.

Source: Spark's KafkaOffsetReaderAdmin and ConsumerStrategy; Kafka's ListOffsets and Metadata APIs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import repeat
from typing import Final, TypeVar

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.list_offsets import SpecialTimestamp
from kafka_wire.primitives import NO_UUID, uuid_text
from trio_broker.client.deadline import Deadline, attempts, retry
from trio_broker.client.error_codes import RETRIED_BY_COMMANDS
from trio_broker.client.errors import ClientError, NotKafka, Refused, VersionNotServed
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import Found, find_offsets, find_offsets_at
from trio_broker.client.topics import TopicDescription, find_topics, list_topics
from trio_broker.common.log_range import UNKNOWN_OFFSET
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError, SourceUnavailable
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.options.selection import Assign, Selection, Subscribe, SubscribePattern

T = TypeVar("T")

REQUEST_SECONDS: Final = 60.0
"""The longest time for one request with all its attempts, as Kafka's ``default.api.timeout.ms``."""

OLDEST_TIME_MS: Final = 0
"""Negative timestamps are special values of ListOffsets, so that older times are replaced by this one."""

NO_SUCH_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class KafkaCluster:
    """An ``OffsetSource``: the partitions and offsets of a cluster. Connects with the first request.

    A request is tried ``retries`` times, ``retry_interval_ms`` apart. With ``read_committed`` a partition ends at its
    last stable offset. Tests replace ``now`` and ``sleep``, which are in seconds.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        *,
        read_committed: bool,
        retries: int,
        retry_interval_ms: int,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_committed = read_committed
        self._attempts = max(1, retries)
        self._retry_interval_seconds = retry_interval_ms / 1000
        self._now = now
        self._sleep = sleep
        self._client = KafkaClient(kafka.connection, self._deadline())

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        self._client.close()

    # --- Partitions ---

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """Return the partitions of ``selection``, sorted; assigned ones that do not exist are left out.

        A pattern that matches nothing is no error.

        Raises:
            OptionError: a named topic does not exist, or is one of Kafka's own.
            SourceUnavailable: no broker answers in time.
        """
        match selection:
            case SubscribePattern():
                topics = self._request(list_topics)
                return _partitions(topic for topic in topics if _is_matched(selection, topic))
            case Subscribe(topics=names):
                return _partitions(self._named(names, "subscribe"))
            case Assign(partitions=assigned):
                names = tuple(sorted({partition.topic for partition in assigned}))
                there = _partitions(self._named(names, "assign"))
                return sorted(set(assigned).intersection(there))

    def _named(self, names: Collection[str], option: str) -> list[TopicDescription]:
        topics = self._request(lambda client: _find(client, names))
        if missing := sorted(set(names) - set(topics)):
            raise OptionError(option, f"there is no topic {', '.join(map(repr, missing))} at {self._where}")
        if internal := [topic.name for topic in topics.values() if topic.is_internal]:
            raise OptionError(option, f"{', '.join(internal)}: topics that Kafka keeps for itself are not read")
        return list(topics.values())

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the id of each topic as Kafka prints it, ``""`` where there is no such topic or the broker is too old.

        Raises:
            SourceUnavailable: no broker answers in time.
        """
        found = self._request(lambda client: _find(client, sorted(topics)))
        return {name: id_text(found[name].topic_id) if name in found else "" for name in topics}

    # --- Offsets ---

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each; partitions that are gone are left out.

        Raises:
            SourceUnavailable: a leader does not answer in time.
        """
        return self._request(lambda client: _offsets(find_offsets(client, partitions, SpecialTimestamp.EARLIEST)))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each for ``read_committed``, else the high watermark; errors as above."""
        committed = self._read_committed
        return self._request(
            lambda client: _offsets(find_offsets(client, partitions, SpecialTimestamp.LATEST, read_committed=committed))
        )

    def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at least as young as the time (ms since 1970), None where none is.

        Partitions that are gone are left out. Records behind the last stable offset do not count for
        ``read_committed``.

        Raises:
            SourceUnavailable: a leader does not answer in time.
        """
        wanted = {partition: max(OLDEST_TIME_MS, time_ms) for partition, time_ms in times.items()}
        committed = self._read_committed
        offsets = self._request(lambda client: _offsets(find_offsets_at(client, wanted, read_committed=committed)))
        return {each: None if offset == UNKNOWN_OFFSET else offset for each, offset in offsets.items()}

    # --- Requests ---

    @property
    def _where(self) -> str:
        return ", ".join(map(str, self._client.settings.bootstrap))

    def _deadline(self) -> Deadline:
        return Deadline(REQUEST_SECONDS, now=self._now, sleep=self._sleep)

    def _request(self, ask: Callable[[KafkaClient], T]) -> T:
        """Return the result of ``ask``, tried as often as the job allows.

        Raises:
            SourceUnavailable: with the text of the last failure.
        """
        client = self._client
        client.deadline = self._deadline()
        waits = repeat(self._retry_interval_seconds, self._attempts - 1)
        try:
            answer = retry(lambda: ask(client), client.deadline, _is_retriable, lambda _: client.forget(), waits)
            # Another broker the next time: one that is cut off from the others would say again what it knew.
            client.forget()
            return answer
        except ClientError as error:
            raise SourceUnavailable(f"kafka.bootstrap.servers {self._where}: {error}") from None


def _is_retriable(error: Exception) -> bool:
    return isinstance(error, ClientError) and not isinstance(error, (NotKafka, VersionNotServed))


def _partitions(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions)


def _is_matched(pattern: SubscribePattern, topic: TopicDescription) -> bool:
    return not topic.is_internal and pattern.matches(topic.name)


def _find(client: KafkaClient, names: Collection[str]) -> dict[str, TopicDescription]:
    """Return those of the named topics that exist. One that is being created is waited for.

    Raises:
        Refused: a topic cannot be described, for another reason than that it does not exist.
    """
    found: dict[str, TopicDescription | Refused] = {}
    for _ in attempts(client.deadline):
        found = find_topics(client, names)
        if not any(isinstance(topic, Refused) and topic.code in RETRIED_BY_COMMANDS for topic in found.values()):
            break
    there: dict[str, TopicDescription] = {}
    for name, topic in found.items():
        if isinstance(topic, TopicDescription):
            there[name] = topic
        elif topic.code not in NO_SUCH_TOPIC:
            raise topic
    return there


def id_text(topic_id: bytes) -> str:
    """Return a topic's id as Kafka prints it, ``""`` for that of a topic without one."""
    return "" if topic_id == NO_UUID else uuid_text(topic_id)


def _offsets(found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, int]:
    """Return the offsets without the partitions that do not exist.

    Raises:
        Refused: a partition has no offset, for another reason.
    """
    offsets: dict[TopicPartition, int] = {}
    for partition, answer in found.items():
        if isinstance(answer, int):
            offsets[partition] = answer
        elif answer.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise answer
    return offsets
