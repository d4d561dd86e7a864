"""One partition of a coordinator's internal topic, and the state that its records describe.

A shard is loaded from its log before it answers. From then on every event appends its records before another event can
change the state: either all that an event changes is in the log, or the request is answered with why not. An event runs
between two checkpoints, so nothing comes between. Subclasses say what the state is.

Source: Kafka's CoordinatorRuntime.CoordinatorContext and CoordinatorShard.
"""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.runtime.log import CoordinatorLog, EncodedRecord
from trio_broker.coordinator.runtime.result import Completion, Now

log = logging.getLogger(__name__)

LOAD_ATTEMPTS = 3
"""How often a shard is read before it stays closed: compaction may move segments under the first reading."""

LOAD_RETRY_SECONDS = 1.0


class ShardState(enum.Enum):
    LOADING = enum.auto()
    ACTIVE = enum.auto()
    CLOSED = enum.auto()


@attrs.frozen
class ShardContext:
    """What a shard needs of the broker. ``image`` is the cluster's current metadata.

    ``schedule`` sets the timer of a key; the shard's ``on_timeout`` is called when it runs. ``log_throttled`` logs what
    clients can cause at any rate: it takes the kind, of which there are few and by which it limits, and the text.
    """

    now: Callable[[], Now]
    image: MetadataImage
    schedule: Callable[[str, float | None], None]
    log_throttled: Callable[[str, str], None]


class Replay(Protocol):
    """The state that a shard's records describe, while they are read."""

    def fold(self, record: EncodedRecord) -> None:
        """Take in one record as it stands in the log.

        Raises:
            WireError: it is damaged; nothing has changed.
        """
        ...


class CoordinatorShard(ABC):
    """The state of one partition, and its log."""

    def __init__(self, log: CoordinatorLog, context: ShardContext) -> None:
        self.log = log
        self.context = context
        self.state = ShardState.LOADING

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    @property
    def is_closed(self) -> bool:
        return self.state is ShardState.CLOSED

    def require_active(self) -> None:
        """Refuse while the shard cannot answer.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``, ``NOT_COORDINATOR``.
        """
        if self.state is ShardState.ACTIVE and self.log.partition.failure is None:
            return
        if self.state is ShardState.LOADING:
            text = f"{self.log.partition.topic_partition} is being loaded"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(f"{self.log.partition.topic_partition} is closed", code=ErrorCode.NOT_COORDINATOR)

    async def load(self, limiter: trio.CapacityLimiter) -> None:
        """Read all records. The shard is active then, or closed if its log cannot be read; others are not affected."""
        async with limiter:
            for attempt in range(1, LOAD_ATTEMPTS + 1):
                try:
                    await self._load()
                except Exception:
                    log.exception("%s cannot be loaded, attempt %d", self.log.partition.topic_partition, attempt)
                    await trio.sleep(LOAD_RETRY_SECONDS)
                else:
                    return
        self.close(ErrorCode.NOT_COORDINATOR)

    async def _load(self) -> None:
        replay = self.new_replay()
        async for part in self.log.slices():
            for record in part.records:
                try:
                    replay.fold(record)
                except WireError as error:
                    log.error("%s: a record is passed over: %s", self.log.partition.topic_partition, error)
            await trio.lowlevel.checkpoint()
        await self.log.ready_to_append()
        # The shard may have been closed while it was read.
        if self.state is ShardState.LOADING:
            self.state = ShardState.ACTIVE
            self.restore(replay)

    @abstractmethod
    def new_replay(self) -> Replay:
        """A state without records, which the records of the log are folded into."""

    @abstractmethod
    def restore(self, replay: Any) -> None:
        """Take the state that ``new_replay`` made and that all records are folded into; the shard is active."""

    @abstractmethod
    def abandon(self, code: ErrorCode) -> None:
        """Complete all requests that wait with ``code``, and drop the state."""

    @abstractmethod
    def on_timeout(self, key: str) -> None:
        """The timer of ``key`` has run."""

    def close(self, code: ErrorCode) -> None:
        """Complete all requests that wait with ``code``, and answer no more."""
        self.state = ShardState.CLOSED
        self.abandon(code)

    def complete(self, completions: Iterable[Completion]) -> None:
        """Complete futures; the responses are sent once all that is appended so far is durable."""
        required_offset = self.log.required_offset
        for completion in completions:
            completion.future.set_result(completion.response, required_offset)
