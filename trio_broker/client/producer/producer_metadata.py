"""The leaders of the partitions that a producer writes to, and the ids of their topics.

The answers are cached until the producer reports that they are out of date. A request about a missing topic makes the
broker create it if ``auto.create.topics.enable`` is set, as with Kafka's producer.

Source: Kafka's ProducerMetadata and KafkaProducer.waitOnMetadata.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import RETRIABLE
from kafka_wire.messages.metadata import (
    AUTO_CREATION_SINCE_VERSION,
    NO_LEADER,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from kafka_wire.schema import Request
from trio_broker.client.address import Address
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline, retry
from trio_broker.client.error_codes import is_retried_by_producers
from trio_broker.client.errors import ClientError, UnknownTopic, WriteFailed, error_name
from trio_broker.client.kafka_client import KafkaClient

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

MISSING_TOPIC_SECONDS: Final = 10.0
"""How long a topic may be missing. A broker that creates it answers LEADER_NOT_AVAILABLE first and has it moments
later. Kafka's producer waits for ``max.block.ms``, a minute, which is long for a misspelt name."""


@attrs.frozen
class Topic:
    """A topic's id, all zeros if brokers are too old for ids, and the leader's broker id of each partition, or -1.

    ``leader_epochs`` are -1 where brokers are too old for them.
    """

    topic_id: bytes
    leaders: dict[int, int]
    leader_epochs: dict[int, int]


@attrs.define
class ProducerMetadata:
    """For one producer; any thread may use it. ``new_deadline`` starts a wait of so many seconds.

    ``option_name`` returns how the user of the program sets one of Kafka's keys (``ProducerSettings.option_name``).
    """

    connection: ConnectionSettings
    request_seconds: float
    block_seconds: float
    new_deadline: Callable[[float], Deadline]
    option_name: Callable[[str], str] = str
    may_create_topics: bool = True
    _topics: dict[str, Topic] = attrs.field(factory=dict)
    _addresses: dict[int, Address] = attrs.field(factory=dict)
    _client: KafkaClient | None = None
    # Reentrant: ``topic`` asks while it holds the lock, and asking takes it again.
    _lock: threading.RLock = attrs.field(factory=threading.RLock)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def forget(self) -> None:
        """Drop all topics, so that the next call about each asks the brokers again."""
        with self._lock:
            self._topics.clear()

    def topic(self, name: str) -> Topic:
        """Return a topic; one that may be created is waited for, at most ``MISSING_TOPIC_SECONDS``.

        Raises:
            UnknownTopic: the topic does not exist.
            WriteFailed: it may not be used, or no broker answers.
        """
        with self._lock:
            if name not in self._topics:
                self._wait_for(name)
            return self._topics[name]

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition of a known topic, or ``NO_LEADER``."""
        with self._lock:
            known = self._topics.get(topic)
            return NO_LEADER if known is None else known.leaders.get(partition, NO_LEADER)

    def address(self, node_id: int) -> Address:
        """Return the address of a broker that leads a partition."""
        with self._lock:
            return self._addresses[node_id]

    def refresh(self, names: Iterable[str]) -> None:
        """Ask about topics again, and another broker. A topic that is reported missing keeps its old state: the report
        may be momentary.

        Raises:
            ClientError: no broker answers.
        """
        with self._lock:
            if self._client is not None:
                self._client.forget()
            for topic in self._ask(sorted(set(names)), self.new_deadline(self.request_seconds)):
                if not topic.error_code:
                    self._take(topic)

    def ask_any(self, request: Request[ResponseT], deadline: Deadline, *, at_least: int = 0) -> ResponseT:
        """Send a request that any broker can answer; errors as ``KafkaClient.any_broker`` and ``ask``."""
        with self._lock:
            if self._client is None:
                # Known brokers after the bootstrap addresses, any of which may be down by now.
                addresses = dict.fromkeys((*self.connection.bootstrap, *self._addresses.values()))
                self._client = KafkaClient(attrs.evolve(self.connection, bootstrap=tuple(addresses)), deadline)
            self._client.deadline = deadline
            try:
                return self._client.ask(self._client.any_broker(), request, at_least=at_least)
            except ClientError:
                # The next attempt begins with the bootstrap addresses again, over a new connection.
                self.close()
                raise

    def retry(self, subject: str, ask: Callable[[Deadline], T]) -> T:
        """Return what ``ask`` returns, called again after any ``ClientError`` but those below.

        Raises:
            WriteFailed: ``max.block.ms`` have passed; the text has the last error. Or ``ask`` raised it itself, or no
                broker serves the request.
        """
        deadline = self.new_deadline(self.block_seconds)
        try:
            return retry(lambda: ask(deadline.within(self.request_seconds)), deadline, is_retried_by_producers)
        except ClientError as error:
            if isinstance(error, WriteFailed):
                raise
            waited = f" within {self.block_seconds:g} s ({self.option_name('max.block.ms')})"
            raise WriteFailed(f"{subject}{waited if is_retried_by_producers(error) else ''}: {error}") from None

    def _wait_for(self, name: str) -> None:
        missing = self.new_deadline(MISSING_TOPIC_SECONDS)

        def ask(deadline: Deadline) -> None:
            for topic in self._ask([name], deadline):
                if not topic.error_code:
                    self._take(topic)
                    return
                if topic.error_code not in RETRIABLE:
                    raise WriteFailed(f"topic {name!r} cannot be written to: {error_name(topic.error_code)}")
            if not (self.may_create_topics and missing.remaining_seconds):
                raise UnknownTopic(f"there is no topic {name!r}, and it is not created by being written to")
            raise ClientError("there is no such topic")

        self.retry(f"topic {name!r} was not found", ask)

    def _ask(self, names: list[str], deadline: Deadline) -> list[MetadataResponseTopic]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=self.may_create_topics
        )
        # A version before 4 would create the topic even with ``may_create_topics=False``.
        response = self.ask_any(request, deadline, at_least=AUTO_CREATION_SINCE_VERSION)
        # Added, never removed: a leader that has gone is not asked again, and its id may return with another address.
        for each in response.brokers:
            self._addresses[each.node_id] = Address(each.host, each.port)
        return response.topics

    def _take(self, topic: MetadataResponseTopic) -> None:
        leaders = {
            # A leader without an address, which no answer has listed, is down: nothing can be sent to it.
            each.partition_index: each.leader_id if each.leader_id in self._addresses else NO_LEADER
            for each in topic.partitions
        }
        epochs = {each.partition_index: each.leader_epoch for each in topic.partitions}
        known = self._topics.get(topic.name or "")
        if known is not None and known.topic_id == topic.topic_id:
            # A broker that is cut off from the others answers with leaders of before (KIP-320).
            for index in [index for index, epoch in epochs.items() if epoch < known.leader_epochs.get(index, -1)]:
                leaders[index], epochs[index] = known.leaders[index], known.leader_epochs[index]
        self._topics[topic.name or ""] = Topic(topic.topic_id, leaders, epochs)
