"""The transactions of one partition of ``__transaction_state``: the machine of the transaction coordinator.

Its state is a ``TransactionMetadata`` for each transactional id. Each request makes one transition or is refused; the
record of a transition is the whole new state of its transactional id.

A transition takes effect when its record is appended, and its response is sent when the record is durable, so no answer
is ever taken back. What others would notice earlier waits as well: markers are written only after the record of PREPARE
is durable, and a batch is let into a partition only after the record that names the partition is durable
(``TransactionCoordinator.verify_steps``).

A transaction that has been open for longer than its timeout is aborted, and its producer fenced. A transactional id
that nobody has used for ``transactional.id.expiration.ms`` is forgotten.

A *hanging* transaction is open in a partition, and not for this machine: a power cut has taken its marker, or the
record that named the partition (docs/decisions/0053). It is ended when the records are loaded, or when the partition is
opened if that comes later, before its producer can write on in it.

Source: Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.messages.end_txn import EndTxnResponse
from kafka_wire.messages.init_producer_id import InitProducerIdResponse
from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafka_wire.stored.transactions import (
    TransactionLogKey,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_record,
)
from trio_broker.cluster.features import TRANSACTION_VERSION
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.transaction_coordinator_config import TransactionCoordinatorConfig
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.machine import Machine
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, CoordinatorResult, Now
from trio_broker.coordinator.transactions.requests import (
    AbortTransaction,
    Ack,
    AddPartitions,
    CompleteTransaction,
    EndHanging,
    EndTransaction,
    InitProducerId,
    OpenEpochs,
    VerifyTransaction,
)
from trio_broker.coordinator.transactions.transaction_metadata import (
    COMPLETED,
    MAX_EPOCH,
    NO_PARTITIONS,
    TransactionMetadata,
    from_log_value,
    is_epoch_exhausted,
    supports_epoch_bump,
    to_log_value,
)

NOT_STARTED: Final = Now(0.0, 0)

ACK: Final = Ack()

SHOWN_CLIENT_ID_CHARACTERS: Final = 200
"""As much of a client's id as is kept for display: there may be hundreds of thousands of transactional ids."""


@attrs.frozen
class TransactionRecord:
    """The new state of a transactional id; None when it is forgotten. ``client_id`` is that of the client which has
    made the transition, if one has; it is not in the log.
    """

    transactional_id: str
    metadata: TransactionMetadata | None
    client_id: str | None = None


TransactionResult = CoordinatorResult[TransactionRecord]

NOTHING_OPEN: Final[OpenEpochs] = {}


class TransactionMachine(Machine[TransactionRecord]):
    """The transactions of one partition. ``on_prepared`` is called with each transactional id whose transaction needs
    its markers. ``find_open`` returns what the logs hold, and is called before the first request.
    """

    def __init__(
        self,
        settings: TransactionCoordinatorConfig,
        on_prepared: Callable[[str], None],
        find_open: Callable[[], OpenEpochs] = lambda: NOTHING_OPEN,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        # For display: the client of each transactional id, as far as one has asked since the start.
        self.client_ids: dict[str, str] = {}
        # Transactions whose end was decided since the start; those that timed out are among the aborted ones.
        self.committed = self.aborted = self.timed_out = 0
        self._settings = settings
        self._on_prepared = on_prepared
        self._find_open = find_open
        # Of ids whose transaction is being committed: where another one hangs, which is to be aborted afterwards.
        self._hanging: dict[str, Mapping[TopicPartition, int]] = {}
        # The time of the latest event: by it the times in records become deadlines.
        self._now = NOT_STARTED

    # ---- records --------------------------------------------------------------------------------------------------

    def replay(self, record: EncodedRecord) -> None:
        decoded = decode_transaction_record(*record)
        if decoded is None:
            return
        key, value = decoded
        try:
            metadata = None if value is None else from_log_value(value)
        except ValueError as error:
            raise WireError(f"transactional id {key.transactional_id!r:.200}: {error}") from None
        self.apply(TransactionRecord(key.transactional_id, metadata))

    def encode(self, record: TransactionRecord) -> EncodedRecord:
        value = None if record.metadata is None else to_log_value(record.metadata)
        return encode_transaction_record(TransactionLogKey(transactional_id=record.transactional_id), value)

    def apply(self, record: TransactionRecord) -> None:
        if record.metadata is None:
            self.transactions.pop(record.transactional_id, None)
            self.client_ids.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.metadata
            if record.client_id is not None:
                self.client_ids[record.transactional_id] = record.client_id

    def loaded(self, now: Now, image: MetadataImage) -> Mapping[str, TransactionResult]:
        self._now = now
        results: dict[str, TransactionResult] = {}
        open_epochs = self._find_open() if self.transactions else NOTHING_OPEN
        for transactional_id, metadata in self.transactions.items():
            after = self._without_hanging(transactional_id, metadata, open_epochs, image)
            if after.is_past_last_epoch:
                after = self._aborted_by_fencing(after, now, image)
            if after is not metadata:
                # Its markers are asked for when this has been written.
                results[transactional_id] = TransactionResult([TransactionRecord(transactional_id, after)])
            elif metadata.is_prepared:
                self._on_prepared(transactional_id)
        return results

    def _without_hanging(
        self, transactional_id: str, metadata: TransactionMetadata, open_epochs: OpenEpochs, image: MetadataImage
    ) -> TransactionMetadata:
        """The state that ends what hangs of the producer's transactions.

        The marker of a complete transaction that can be no other is written again. All else is aborted, and its
        producer fenced: of what it wrote, more may be lost.
        """
        replaced = metadata.with_previous_producer_id()
        if (lost := open_epochs.get(replaced.producer_id)) and is_of_complete_transaction(replaced, lost):
            return replaced.prepared_again(lost, self._now.wall_ms)
        found = open_epochs.get(metadata.producer_id)
        if not found or not (hanging := hanging_partitions(metadata, found)):
            return metadata
        if metadata.status is TransactionStatus.PREPARE_COMMIT:
            self._hanging[transactional_id] = hanging
            return attrs.evolve(metadata, partitions=metadata.partitions.difference(hanging))
        if metadata.status is TransactionStatus.PREPARE_ABORT and max(hanging.values()) <= ended_epoch(metadata):
            return attrs.evolve(metadata, partitions=metadata.partitions.union(hanging))
        return self._aborted_where(metadata, hanging, self._now, image)

    def _aborted_where(
        self,
        metadata: TransactionMetadata,
        hanging: Mapping[TopicPartition, int],
        now: Now,
        image: MetadataImage,
    ) -> TransactionMetadata:
        """The abort of what hangs, with an epoch that all partitions take: the records of the last ones may be lost."""
        newest = attrs.evolve(metadata, producer_epoch=max(metadata.producer_epoch, *hanging.values()))
        aborted = self._aborted_by_fencing(newest, now, image)
        return attrs.evolve(aborted, partitions=metadata.partitions.union(hanging))

    def observe(self, key: str, result: TransactionResult) -> None:
        metadata = self.transactions.get(key)
        if not result.records:
            return
        if metadata is None or metadata.status is not TransactionStatus.PREPARE_COMMIT:
            self._hanging.pop(key, None)
        if metadata is not None and metadata.is_prepared:
            self._on_prepared(key)
            if metadata.status is TransactionStatus.PREPARE_COMMIT:
                self.committed += 1
            else:
                self.aborted += 1
                # Nobody waits for what the broker does by itself.
                self.timed_out += not result.completions

    def timed_keys(self) -> Collection[str]:
        return self.transactions

    def abandon(self, key: str, code: ErrorCode) -> Sequence[Completion]:
        """No request waits in a machine whose events each answer their own."""
        del self.transactions[key]
        self.client_ids.pop(key, None)
        return ()

    # ---- time -----------------------------------------------------------------------------------------------------

    def next_deadline(self, key: str) -> float | None:
        if (metadata := self.transactions.get(key)) is None or (due_ms := self._due_ms(metadata)) is None:
            return None
        return self._now.monotonic_seconds + (due_ms - self._now.expiry_ms) / 1000

    def _due_ms(self, metadata: TransactionMetadata) -> int | None:
        """When the transaction times out or its id expires, in milliseconds since 1970."""
        if metadata.status is TransactionStatus.ONGOING:
            return metadata.start_ms + metadata.timeout_ms
        if metadata.is_idle:
            return metadata.last_update_ms + self._settings.transactional_id_expiration_ms
        return None

    def on_timeout(self, key: str, now: Now, image: MetadataImage) -> TransactionResult | None:
        self._now = now
        metadata = self.transactions.get(key)
        if metadata is None or (due_ms := self._due_ms(metadata)) is None or now.expiry_ms < due_ms:
            return None
        after = self._aborted_by_fencing(metadata, now, image) if not metadata.is_idle else None
        return TransactionResult([TransactionRecord(key, after)])

    def _aborted_by_fencing(self, metadata: TransactionMetadata, now: Now, image: MetadataImage) -> TransactionMetadata:
        """The open transaction is aborted, and its producer can do no more in it."""
        # By the cluster's protocol, not the client's: the markers fence the more the newer it is.
        version = image.features.get(TRANSACTION_VERSION, 0)
        return metadata.aborted_by_fencing(version, now.wall_ms)

    # ---- events ---------------------------------------------------------------------------------------------------

    def decide(self, event: CoordinatorEvent[Any]) -> TransactionResult | None:
        self._now = event.now
        return _HANDLERS[type(event.request)](self, event)

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId, EndTransaction or CompleteTransaction may need a producer id that nobody has."""
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return True
        return metadata.lacks_next_producer_id if metadata.is_prepared else metadata.is_epoch_exhausted

    def init_producer_id(self, event: CoordinatorEvent[InitProducerId]) -> TransactionResult:
        """A producer takes a transactional id, and fences the one that had it.

        Raises:
            KafkaError: ``PRODUCER_FENCED``, ``CONCURRENT_TRANSACTIONS``.
        """
        request, now = event.request, event.now
        before = self.transactions.get(request.transactional_id)
        if before is not None and before.status is TransactionStatus.ONGOING:
            require_expected(before, request.expected)
            aborted = self._aborted_by_fencing(before, now, event.image)
            # The client tries again, and gets an epoch of its own once the markers are written.
            response = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
            )
            return _transition(event, aborted, response)
        if before is None:
            before = TransactionMetadata(
                producer_id=_require_new_id(request.new_producer_id),
                timeout_ms=request.timeout_ms,
                last_update_ms=now.wall_ms,
            )
        after = begun_anew(before, request, now.wall_ms)
        response = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return _transition(event, after, response)

    def is_ending(self, transactional_id: str, producer: ProducerIdAndEpoch) -> bool:
        """Whether the producer must wait until its transaction has got its markers."""
        metadata = self.transactions.get(transactional_id)
        return metadata is not None and metadata.is_ending_for(producer)

    def add_partitions(self, event: CoordinatorEvent[AddPartitions]) -> TransactionResult | None:
        """Partitions become part of the transaction.

        Raises:
            KafkaError: ``INVALID_PRODUCER_ID_MAPPING``, ``PRODUCER_FENCED``, ``CONCURRENT_TRANSACTIONS``.
        """
        request = event.request
        metadata = self._of_producer(request.transactional_id, request.producer)
        if metadata.status is TransactionStatus.ONGOING and metadata.partitions.issuperset(request.partitions):
            return _answer(event, ACK)
        after = metadata.with_partitions(request.partitions, request.client_transaction_version, event.now.wall_ms)
        return _transition(event, after, ACK)

    def verify(self, event: CoordinatorEvent[VerifyTransaction]) -> TransactionResult:
        """Answer once all that is known of the transaction is durable; errors as ``add_partitions``."""
        self._of_producer(event.request.transactional_id, event.request.producer)
        return _answer(event, ACK)

    def require_added(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Refuse a partition that is not part of the producer's transaction.

        Raises:
            KafkaError: those of ``add_partitions``; ``TRANSACTION_ABORTABLE`` if the partition was never added.
        """
        if partition not in self._of_producer(transactional_id, producer).partitions:
            text = f"{partition} was not added to the transaction of {transactional_id!r:.200}"
            raise KafkaError(text, code=ErrorCode.TRANSACTION_ABORTABLE)

    def _of_producer(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        """What ``producer`` may add to, or end.

        What a producer does next is not refused while its transaction is ending, but put off: it has its next epoch, or
        its next id, since its EndTxn was answered.

        Raises:
            KafkaError: as ``add_partitions``.
        """
        metadata = self.transactions.get(transactional_id)
        if metadata is not None and metadata.is_ending_for(producer):
            raise _concurrent(transactional_id)
        if metadata is None or metadata.producer_id != producer.producer_id:
            raise _not_mapped(transactional_id, producer)
        if metadata.producer_epoch != producer.epoch:
            raise _fenced(transactional_id, producer, metadata)
        return metadata

    def end(self, event: CoordinatorEvent[EndTransaction]) -> TransactionResult:
        """Commit or abort.

        Raises:
            KafkaError: ``INVALID_PRODUCER_ID_MAPPING``, ``PRODUCER_FENCED``, ``CONCURRENT_TRANSACTIONS``,
                ``INVALID_TXN_STATE``.
        """
        request = event.request
        metadata = self.transactions.get(request.transactional_id)
        bumps_epoch = supports_epoch_bump(request.client_transaction_version)
        is_retry = metadata is not None and bumps_epoch and is_repeated_end(metadata, request.producer)
        if metadata is None or not is_retry:
            metadata = self._of_producer(request.transactional_id, request.producer)
        if (status := status_after_end(metadata, request, is_retry=is_retry)) is None:
            return _answer(event, _ended(metadata, bumps_epoch))
        next_producer_id = NO_PRODUCER_ID
        if bumps_epoch and metadata.is_epoch_exhausted:
            next_producer_id = _require_new_id(request.new_producer_id)
        after = metadata.prepared(status, request.client_transaction_version, event.now.wall_ms, next_producer_id)
        return _transition(event, after, _ended(after, bumps_epoch))

    def abort(self, event: CoordinatorEvent[AbortTransaction]) -> TransactionResult:
        """An administrator aborts one transaction, as a timeout would.

        Raises:
            KafkaError: ``INVALID_TXN_STATE``: it is not ongoing any more.
        """
        request = event.request
        metadata = self.transactions.get(request.transactional_id)
        is_same = (
            metadata is not None
            and metadata.status is TransactionStatus.ONGOING
            and (metadata.producer, metadata.start_ms) == (request.producer, request.start_ms)
        )
        if metadata is None or not is_same:
            text = f"the transaction of {request.transactional_id!r:.200} has ended, or is another one by now"
            raise KafkaError(text, code=ErrorCode.INVALID_TXN_STATE)
        return _transition(event, self._aborted_by_fencing(metadata, event.now, event.image), ACK)

    def end_hanging(self, event: CoordinatorEvent[EndHanging]) -> TransactionResult | None:
        """As when the records are loaded, for partitions that are opened later."""
        transactional_id = event.request.transactional_id
        metadata = self.transactions[transactional_id]
        after = self._without_hanging(transactional_id, metadata, event.request.open_epochs, event.image)
        if after is metadata:
            event.future.set_result(ACK)
            return None
        return _transition(event, after, ACK)

    def complete(self, event: CoordinatorEvent[CompleteTransaction]) -> TransactionResult | None:
        """All markers are written. Nothing happens if the transaction is another by now, or has other partitions."""
        request = event.request
        metadata = self.transactions.get(request.transactional_id)
        is_same = (
            metadata is not None
            and metadata.is_prepared
            and (metadata.producer, metadata.partitions) == (request.producer, request.partitions)
        )
        if metadata is None or not is_same:
            event.future.set_result(ACK)
            return None
        if hanging := self._hanging.get(request.transactional_id):
            # Of the same producer id: if that is to be replaced, then after its last marker.
            committed = attrs.evolve(metadata, partitions=NO_PARTITIONS)
            after = self._aborted_where(committed, hanging, event.now, event.image)
        else:
            new_id = _require_new_id(request.new_producer_id) if metadata.lacks_next_producer_id else NO_PRODUCER_ID
            after = metadata.completed(event.now.wall_ms, new_id)
        return _transition(event, after, ACK)


_HANDLERS: dict[type, Callable[[TransactionMachine, Any], TransactionResult | None]] = {
    InitProducerId: TransactionMachine.init_producer_id,
    AddPartitions: TransactionMachine.add_partitions,
    VerifyTransaction: TransactionMachine.verify,
    EndTransaction: TransactionMachine.end,
    AbortTransaction: TransactionMachine.abort,
    EndHanging: TransactionMachine.end_hanging,
    CompleteTransaction: TransactionMachine.complete,
}


# ---- decisions ----------------------------------------------------------------------------------------------------


def require_expected(metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> None:
    """Refuse a producer that goes on with an id which is no longer that of its transactional id (KIP-360).

    Raises:
        KafkaError: ``PRODUCER_FENCED``.
    """
    if expected is None or metadata.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if expected.producer_id == metadata.producer_id:
        return
    # It may repeat the request by which its id was replaced.
    if expected.producer_id == metadata.previous_producer_id and is_epoch_exhausted(expected.epoch):
        return
    text = f"the producer id is {metadata.producer_id}, not {expected.producer_id}"
    raise KafkaError(text, code=ErrorCode.PRODUCER_FENCED)


def begun_anew(before: TransactionMetadata, request: InitProducerId, now_ms: int) -> TransactionMetadata:
    """The state after InitProducerId where no transaction is ongoing.

    Raises:
        KafkaError: ``CONCURRENT_TRANSACTIONS`` while the transaction before is ending; ``PRODUCER_FENCED``.
    """
    expected, timeout_ms = request.expected, request.timeout_ms
    # Before anything is said of the producer, which may have the id already that the end sets aside.
    if before.is_prepared:
        raise _concurrent(request.transactional_id)
    require_expected(before, expected)
    is_same = expected is not None
    if before.is_epoch_exhausted and (expected is None or expected.epoch == before.producer_epoch):
        new_id = _require_new_id(request.new_producer_id)
        return before.with_new_producer_id(new_id, timeout_ms, now_ms, is_same_producer=is_same)
    if expected is None or before.producer_epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return before.with_next_epoch(timeout_ms, now_ms, is_same_producer=is_same)
    if expected.epoch == before.last_producer_epoch:
        return before.with_same_epoch(timeout_ms, now_ms)
    raise _fenced(request.transactional_id, expected, before)


def is_repeated_end(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether a producer of the second protocol repeats the EndTxn by which its epoch was raised or its id replaced."""
    if metadata.status is TransactionStatus.ONGOING or metadata.status is TransactionStatus.EMPTY:
        return False
    if metadata.producer_id == producer.producer_id:
        return metadata.producer_epoch == producer.epoch + 1
    is_replaced = metadata.previous_producer_id == producer.producer_id and metadata.producer_epoch == 0
    return metadata.status in COMPLETED and is_replaced and is_epoch_exhausted(producer.epoch)


def status_after_end(
    metadata: TransactionMetadata, request: EndTransaction, *, is_retry: bool
) -> TransactionStatus | None:
    """The status that EndTxn leads to, None if it has done so before.

    Raises:
        KafkaError: ``INVALID_TXN_STATE``, ``CONCURRENT_TRANSACTIONS``; ``PRODUCER_FENCED`` to a commit that comes after
            the coordinator's own abort (KAFKA-20785).
    """
    prepare = TransactionStatus.PREPARE_COMMIT if request.commits else TransactionStatus.PREPARE_ABORT
    complete = TransactionStatus.COMPLETE_COMMIT if request.commits else TransactionStatus.COMPLETE_ABORT
    if metadata.status is TransactionStatus.ONGOING:
        return prepare
    if metadata.is_prepared:
        raise _concurrent(request.transactional_id)
    bumps_epoch = supports_epoch_bump(request.client_transaction_version)
    if metadata.status is complete and (is_retry or not bumps_epoch):
        return None
    # A producer repeats its own end as it was.
    if is_retry and request.commits:
        raise _fenced(request.transactional_id, request.producer, metadata)
    # Of the second protocol a producer may abort although the coordinator knows of no partition: its batch may be
    # under way, and is fenced by the raised epoch.
    if bumps_epoch and not request.commits and metadata.is_idle and not is_retry:
        return prepare
    text = f"the transaction of {request.transactional_id!r:.200} is in the state {metadata.status.name}"
    raise KafkaError(text, code=ErrorCode.INVALID_TXN_STATE)


def ended_epoch(metadata: TransactionMetadata) -> int:
    """The epoch of the batches in the transaction: in the second protocol its end has the next one."""
    is_raised = metadata.is_prepared and supports_epoch_bump(metadata.client_transaction_version)
    return metadata.producer_epoch - 1 if is_raised else metadata.producer_epoch


def hanging_partitions(
    metadata: TransactionMetadata, found: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """The partitions where a transaction of the producer is ``found`` open that is not the one of ``metadata``, and
    would not be ended with it.
    """
    if metadata.is_idle:
        return found
    epoch = ended_epoch(metadata)
    # An abort ends whatever its epoch fences.
    is_abort = metadata.status is TransactionStatus.PREPARE_ABORT
    return {
        partition: its_epoch
        for partition, its_epoch in found.items()
        if partition not in metadata.partitions or not (its_epoch == epoch or (is_abort and its_epoch < epoch))
    }


def is_of_complete_transaction(metadata: TransactionMetadata, found: Mapping[TopicPartition, int]) -> bool:
    """Whether all that is ``found`` open is the transaction that ``metadata`` has completed. Only in the second
    protocol has each transaction an epoch of its own, by which that is known.
    """
    if metadata.status not in COMPLETED or not supports_epoch_bump(metadata.client_transaction_version):
        return False
    # The last one cannot be raised: an earlier version has let a client write with it.
    return all(min(epoch + 1, MAX_EPOCH) == metadata.producer_epoch for epoch in found.values())


def _ended(metadata: TransactionMetadata, bumps_epoch: bool) -> EndTxnResponse:
    if not bumps_epoch:
        return EndTxnResponse()
    if metadata.next_producer_id != NO_PRODUCER_ID:
        return EndTxnResponse(producer_id=metadata.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def _answer(event: CoordinatorEvent[Any], response: Any) -> TransactionResult:
    """Nothing changes, and the response waits until what is known is durable."""
    result = TransactionResult(is_routine=True)
    result.complete(event.future, response)
    return result


def _transition(event: CoordinatorEvent[Any], after: TransactionMetadata, response: Any) -> TransactionResult:
    client_id = event.context.client_id[:SHOWN_CLIENT_ID_CHARACTERS] or None
    result = TransactionResult([TransactionRecord(event.request.transactional_id, after, client_id)])
    result.complete(event.future, response)
    return result


def _require_new_id(new_producer_id: int | None) -> int:
    """The id that was allocated for a request.

    Raises:
        KafkaError: ``CONCURRENT_TRANSACTIONS``: another request came between, so none was.
    """
    if new_producer_id is None:
        raise KafkaError("another request for this id came first", code=ErrorCode.CONCURRENT_TRANSACTIONS)
    return new_producer_id


def _not_mapped(transactional_id: str, producer: ProducerIdAndEpoch) -> KafkaError:
    text = f"transactional id {transactional_id!r:.200} does not have producer id {producer.producer_id}"
    return KafkaError(text, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _fenced(transactional_id: str, producer: ProducerIdAndEpoch, metadata: TransactionMetadata) -> KafkaError:
    text = f"transactional id {transactional_id!r:.200}: epoch {producer.epoch}, known is {metadata.producer_epoch}"
    return KafkaError(text, code=ErrorCode.PRODUCER_FENCED)


def _concurrent(transactional_id: str) -> KafkaError:
    text = f"the transaction of {transactional_id!r:.200} is ending"
    return KafkaError(text, code=ErrorCode.CONCURRENT_TRANSACTIONS)
