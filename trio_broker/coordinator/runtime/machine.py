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

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, CoordinatorResult, Now

RecordT = TypeVar("RecordT")


class Machine(Protocol[RecordT]):
    """The state of one partition of an internal topic, and what each event makes of it.

    A coordinator is a machine, and an object that owns a ``CoordinatorRuntime`` of it and has the API that handlers
    call: ``GroupMachine`` and ``GroupCoordinator``, ``TransactionMachine`` and ``TransactionCoordinator``.

    Records may be part of a producer's transaction (``CoordinatorResult.producer``). They are pending until a marker
    stands in the log, which ``Shard.end_transaction`` puts there.

    The members with a body are for machines that need no more.
    """

    # ---- loading --------------------------------------------------------------------------------------------------

    def replay(self, record: EncodedRecord) -> None:
        """Decode and apply a record that is read from the log.

        Raises:
            WireError: it is damaged; nothing has changed.
        """
        ...

    def replay_pending(self, producer_id: int, record: EncodedRecord) -> None:
        """As ``replay``, for a record of a transaction whose end has not been read yet."""
        raise WireError(f"a record of producer {producer_id}'s transaction, where there are none")

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

    def apply_pending(self, producer_id: int, record: RecordT) -> None:
        """Keep a record that is in the log and counts when the transaction of ``producer_id`` is committed."""
        raise AssertionError(f"producer {producer_id}: this coordinator has no transactional records")

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker is in the log: what was pending of ``producer_id`` counts now, or never.

        Raises:
            WireError: this coordinator has no transactional records, and neither should its log.
        """
        raise WireError(f"the end of a transaction of producer {producer_id}, where there are none")

    def replace(self, key: str, state: Any) -> Sequence[Completion]:
        """Put ``CoordinatorResult.replace_with`` in the place of the state of ``key``, whose requests that wait are
        completed with what this returns.
        """
        raise AssertionError(f"{key}: there is nothing to replace")

    def observe(self, key: str, result: CoordinatorResult[RecordT]) -> None:
        """Follow a result that has taken effect, with what is no part of the state: statistics, tasks."""

    # ---- the end --------------------------------------------------------------------------------------------------

    def timed_keys(self) -> Collection[str]:
        """The keys that have a state, and may have a deadline."""
        ...

    def abandon(self, key: str, code: ErrorCode) -> Sequence[Completion]:
        """Drop the state of ``key``, which is among the ``timed_keys``; another coordinator has it. Returns responses
        with ``code`` to all its requests that wait.
        """
        ...
