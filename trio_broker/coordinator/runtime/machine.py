"""What a coordinator is, apart from its runtime: a machine whose state is a fold over the records of one partition.

``Shard`` runs it, in this order and between two checkpoints of the event loop::

    event ─▶ decide ─▶ append the records ─▶ apply each of them ─▶ complete futures ─▶ observe ─▶ next_deadline
                             │ refused by the log
                             └─▶ CoordinatorResult.refused ─▶ complete futures ─▶ observe ─▶ next_deadline

``apply`` is the only function that changes what records hold, after an append and after a restart alike. So memory and
log cannot differ, and nothing is undone when the log refuses. What no record holds (sessions, requests that wait) a
machine may change while it decides.

A key is what records and timers are about: a group's id, a transactional id. All records of a key are on one partition.

Source: Kafka's CoordinatorShard and CoordinatorPlayback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kafka_wire.error_codes import ErrorCode
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, CoordinatorResult, Now

RecordT = TypeVar("RecordT")


class Machine(Protocol[RecordT]):
    """The state of one partition of an internal topic, and what each event makes of it.

    A coordinator is a machine, and an object that owns a ``CoordinatorRuntime`` of it and has the API that handlers
    call (``GroupCoordinator``). A transaction coordinator is written so:

    * Its record is the key and value of ``__transaction_state``; its state is the transactions by transactional id, and
      ``apply`` puts the value of a record in the place of the transaction that it names.
    * ``decide`` takes InitProducerId, AddPartitionsToTxn, EndTxn and an event of its own, "the markers are written". To
      EndTxn it returns the record of PREPARE_COMMIT and the response. Nothing of it has happened if the log refuses, so
      ``refused`` only makes the error response.
    * ``next_deadline`` of a transactional id is when its transaction times out; ``on_timeout`` returns the record of
      PREPARE_ABORT with a raised epoch.
    * ``observe`` queues a transaction that has come into PREPARE_COMMIT for the task that waits until the record is
      durable (``CoordinatorRuntime.until_durable``), writes the markers, and passes that event to ``Shard.handle``.
      ``loaded`` queues those that a restart found in it.

    The members with a body are for machines that need no more.
    """

    # ---- loading --------------------------------------------------------------------------------------------------

    def replay(self, record: EncodedRecord) -> None:
        """Decode and apply a record that is read from the log.

        Raises:
            WireError: it is damaged; nothing has changed.
        """
        ...

    def loaded(self, now: Now, image: MetadataImage) -> Mapping[str, CoordinatorResult[RecordT]]:
        """All records have been replayed; start sessions. Returns what is to be done before the first event, by key."""
        return {}

    # ---- events ---------------------------------------------------------------------------------------------------

    def decide(self, event: CoordinatorEvent[Any]) -> CoordinatorResult[RecordT] | None:
        """What follows from a request. None if nothing does but the response, which is set, and no deadline is nearer.

        Raises:
            KafkaError: the request is refused; nothing has changed.
        """
        ...

    def on_timeout(self, key: str, now: Now, image: MetadataImage) -> CoordinatorResult[RecordT] | None:
        """What follows from the deadline of ``key``; it may be called before, and then there is nothing to do."""
        ...

    def next_deadline(self, key: str) -> float | None:
        """When ``on_timeout`` is to be called at the latest, in monotonic seconds. Read again after each event of the
        key, so no event may bring the deadline of another key nearer.
        """
        ...

    # ---- records --------------------------------------------------------------------------------------------------

    def least_bytes(self, record: RecordT) -> int:
        """What a record takes at least, where what a client has sent can make it larger than any batch."""
        return 0

    def encode(self, record: RecordT) -> EncodedRecord:
        """The bytes of a record.

        Raises:
            ValueError: a field does not fit.
        """
        ...

    def apply(self, record: RecordT) -> None:
        """Change the state as a record says that is in the log."""
        ...

    def replace(self, key: str, state: Any) -> Sequence[Completion]:
        """Put ``CoordinatorResult.replace_with`` in the place of the state of ``key``, whose requests that wait are
        completed with what this returns.
        """
        raise AssertionError(f"{key}: there is nothing to replace")

    def observe(self, key: str, result: CoordinatorResult[RecordT]) -> None:
        """Follow a result that has taken effect, with what is no part of the state: statistics, tasks."""

    # ---- the end --------------------------------------------------------------------------------------------------

    def timed_keys(self) -> Iterable[str]:
        """The keys that may have a deadline."""
        ...

    def abandon(self, code: ErrorCode) -> Sequence[Completion]:
        """Drop the state; another coordinator has it. Returns responses with ``code`` to all requests that wait."""
        ...
