"""Record batches, version 2: the unit that producers send, the log stores and consumers fetch.

======  =====  ======================  ===================================================
offset  bytes  field
======  =====  ======================  ===================================================
0       8      base_offset             given by the leader; producers send 0
8       4      batch_length            bytes after this field
12      4      partition_leader_epoch  given by the leader
16      1      magic                   2
17      4      crc                     unsigned CRC-32C of everything from attributes on
21      2      attributes              codec, timestamp type, transactional, control, delete horizon
23      4      last_offset_delta       kept by compaction
27      8      base_timestamp          milliseconds since the epoch; timestamps of records are relative to it
35      8      max_timestamp
43      8      producer_id             -1 for none
51      2      producer_epoch          -1 for none
53      4      base_sequence           -1 for none
57      4      record_count            0 only in a batch emptied by compaction
61             records                 as one block, compressed when a codec is set
======  =====  ======================  ===================================================

All integers are big-endian. The leader stamps offset and epoch without touching the CRC, since they lie before it; so
the CRC does not show a flipped bit there.

Reading a header costs one ``struct`` call and looks at nothing behind it. The records are decoded when they are
read.

Source: Kafka's DefaultRecordBatch; docs/formats/record-batch.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Generator, Iterable, Iterator
from itertools import islice

import attrs

from kafka_wire.emit_source import TURN_ELEMENTS
from kafka_wire.limits import MAX_OFFSET, MAX_OFFSET_DELTA, MAX_SEQUENCE
from kafka_wire.primitives import ReadableBuffer
from kafka_wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from kafka_wire.records.crc import crc32c
from kafka_wire.records.errors import CorruptRecordBatch, InvalidRecord
from kafka_wire.records.record import (
    MAX_RECORD_BYTES,
    KeyAndValue,
    NewRecord,
    Record,
    RecordsSummary,
    append_record,
    check_record_lengths,
    check_records,
    read_keys_and_values,
    read_records,
)

BATCH_HEADER_BYTES = 61
"""Up to and with ``record_count``: the smallest batch there is."""

LOG_OVERHEAD_BYTES = 12
"""``base_offset`` and ``batch_length``: what ``batch_length`` does not count."""

MIN_BATCH_LENGTH = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES
"""The smallest ``batch_length``: the rest of the header counts."""

MAGIC = 2

MAGIC_POSITION = 16
"""The same in the formats before this one."""

ATTRIBUTES_POSITION = 21
"""Where the CRC begins to count."""

ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1
"""Where a batch has codec, timestamp type, and the transactional and control bits."""

PRODUCER_ID_POSITION = 43
"""The producer's epoch and the sequence of the first record follow."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35

_CODECS = tuple(Codec)


class TimestampType(enum.IntEnum):
    """Who gave the records their timestamps: the producer, or the broker when it appended them."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@attrs.define
class BatchHeader:
    """The 61 bytes before the records, as they stand there."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch with its header."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset the batch takes up, even where compaction removed the record that had it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed.

        Raises:
            InvalidRecord: the attributes name a codec that does not exist.
        """
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise InvalidRecord(f"codec {number} does not exist")
        # A table: to call an enum with a number costs 0.4 µs, and every batch of a client is asked.
        return _CODECS[number]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose timestamps these are; with LOG_APPEND_TIME every record's is ``max_timestamp``."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction, or the marker ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether this holds a control record, which applications never see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` says when tombstones in here may go; records are relative to it all the same."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote this; if not, its epoch and sequence mean nothing."""
        return self.producer_id != NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 if there is none; after 2**31 - 1 it wraps to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        # By the offset delta, not the record count: compaction removes records, and the sequence numbers stay taken.
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


@attrs.define
class RecordBatch:
    """A whole batch: its header, read, and its bytes, untouched."""

    header: BatchHeader
    buffer: memoryview

    def verify_crc(self) -> None:
        """Compare the checksum.

        Raises:
            CorruptRecordBatch: it differs.
        """
        actual = crc32c(self.buffer[ATTRIBUTES_POSITION:])
        if actual != self.header.crc:
            raise CorruptRecordBatch(
                f"batch at offset {self.header.base_offset}: CRC is {actual:#010x}, header says {self.header.crc:#010x}"
            )

    def stamp(self, *, base_offset: int, partition_leader_epoch: int) -> None:
        """Write the leader's offset and epoch into the header and the bytes. The CRC does not cover them."""
        header, buffer = self.header, self.buffer
        header.base_offset = base_offset
        header.partition_leader_epoch = partition_leader_epoch
        # The length, which lies between the two, is written again.
        _STAMP.pack_into(buffer, 0, base_offset, header.batch_length, partition_leader_epoch)

    def amend(self, *, attributes: int, max_timestamp: int) -> None:
        """Write other attributes and another largest timestamp into the header and the bytes, with a new CRC.

        With ``TIMESTAMP_TYPE_BIT`` the records keep their own timestamps, and readers take ``max_timestamp`` for all of
        them: so nothing has to be compressed again.
        """
        header, buffer = self.header, self.buffer
        header.attributes, header.max_timestamp = attributes, max_timestamp
        _ATTRIBUTES.pack_into(buffer, ATTRIBUTES_POSITION, attributes)
        _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, max_timestamp)
        header.crc = crc32c(buffer[ATTRIBUTES_POSITION:])
        _CRC.pack_into(buffer, _CRC_POSITION, header.crc)

    def payload(self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
        """Return the bytes of the records, inflated; errors are those of ``decompress``."""
        block = self.buffer[BATCH_HEADER_BYTES:]
        if not self.header.attributes & CODEC_MASK and len(block) <= max_bytes:
            return bytes(block)  # as ``decompress`` would: most batches are small and not compressed
        if not block and not self.header.record_count:
            return b""  # emptied by compaction, which may leave the codec's bits behind
        return decompress(self.header.codec, block, max_bytes=max_bytes)

    def records(self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records with their absolute offsets and timestamps.

        The CRC is not looked at; ``verify_crc`` does that. Inflating happens at the first record asked for.

        Raises:
            InvalidRecord: the records break the format.
            DecompressionTooLarge: they would take more than ``max_bytes``.
        """
        header = self.header
        _check_offsets(header)
        records = read_records(
            self.payload(max_bytes=max_bytes),
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            last_offset_delta=header.last_offset_delta,
        )
        if header.timestamp_type is TimestampType.CREATE_TIME:
            yield from records
            return
        for record in records:
            # The records still hold the producer's own timestamps, which LOG_APPEND_TIME overrides.
            record.timestamp = header.max_timestamp
            yield record

    def keys_and_values(self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[KeyAndValue]:
        """Return keys and values alone, which takes half the time of ``records``; errors are the same."""
        header = self.header
        if header.attributes & CODEC_MASK:
            block = self.payload(max_bytes=max_bytes)
        else:
            # Not bounded by ``max_bytes``: what is not compressed takes as much memory as its batch has already.
            block = bytes(self.buffer[BATCH_HEADER_BYTES:])
        return read_keys_and_values(block, header.record_count)

    def validate_records(
        self, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> RecordsSummary:
        """Check the records as a leader does before it takes a client's batch, without building any of them.

        Offsets must be 0, 1, 2 …, as many as ``record_count`` and ``last_offset_delta`` say, and at least one.
        Timestamps in the summary are the records' own, whatever the header says. A compressed batch has no record of
        more than ``max_record_bytes``: in others a record is bounded by the size of the batch, as it came.

        Raises:
            InvalidRecord: the records break the format or these rules.
            DecompressionTooLarge: they would take more than ``max_bytes``.
        """
        header = self.header
        if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
            raise InvalidRecord(
                f"record_count {header.record_count} does not go with last_offset_delta {header.last_offset_delta}"
            )
        _check_offsets(header)
        records = self.payload(max_bytes=max_bytes)
        if header.codec is not Codec.NONE and len(records) > max_record_bytes:
            check_record_lengths(records, header.record_count, max_record_bytes=max_record_bytes)
        return check_records(records, header.record_count, base_timestamp=header.base_timestamp)


def _check_offsets(header: BatchHeader) -> None:
    if header.last_offset_delta < 0 or not 0 <= header.base_offset <= MAX_OFFSET - header.last_offset_delta:
        raise InvalidRecord(f"offsets from {header.base_offset}, {header.last_offset_delta} further")


def read_batch_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """Return the header at ``position``. The rest of the batch need not be there.

    Raises:
        CorruptRecordBatch: fewer than 61 bytes are left, the batch is shorter than its header, or no such magic exists.
        InvalidRecord: magic 0 or 1, the message sets of old, which brokers since 4.0 do not take.
    """
    try:
        # By position: the fields of the class stand in the order of ``_HEADER``.
        header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptRecordBatch(
            f"{len(buffer) - position} bytes where a batch has at least {BATCH_HEADER_BYTES}"
        ) from None
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise InvalidRecord(f"magic {header.magic} at offset {header.base_offset}: only 2 is supported")
        raise CorruptRecordBatch(f"magic {header.magic} at offset {header.base_offset} does not exist")
    # A smaller length would let ``read_batches`` stand still, or go backward where it is negative.
    if header.batch_length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptRecordBatch(f"a batch of {header.batch_length} bytes at offset {header.base_offset}")
    return header


def read_batches(buffer: ReadableBuffer) -> Iterator[RecordBatch]:
    """Yield the whole batches in ``buffer``, one after the other; stop at one that is cut short.

    A fetch response, or a piece of a segment, may end in the middle of a batch: that is no error.

    Raises:
        CorruptRecordBatch: what should be a batch is none. The batches before it have been yielded.
    """
    view = memoryview(buffer)
    position, size = 0, len(view)
    while size - position >= BATCH_HEADER_BYTES:
        header = read_batch_header(view, position)
        end = position + header.size_bytes
        # Also where the length is damaged: a caller that has the whole file sees that bytes are left over.
        if end > size:
            return
        yield RecordBatch(header, view[position:end])
        position = end


def build_batch(
    records: Iterable[Record | NewRecord],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return a batch of ``records``.

    A ``NewRecord`` comes at the next offset; a ``Record`` keeps its own, so that gaps stay. Timestamps are relative
    to the first record's.

    Raises:
        ValueError: no records at all, or offsets that do not increase.
    """
    new = _NewBatch(base_offset)
    new.add(records)
    if not new.record_count:
        raise ValueError("a batch of no records: only compaction leaves those, in batches that had some")
    attributes = (
        codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    block = new.body if codec is Codec.NONE else compress(codec, new.body)
    return new.assembled(block, attributes, partition_leader_epoch, producer_id, producer_epoch, base_sequence)


def build_batch_in_turns(records: Iterable[NewRecord]) -> Generator[None, None, bytes]:
    """Return a batch of ``records``, as ``build_batch``, yielding after every ``TURN_ELEMENTS`` of them."""
    new, remaining = _NewBatch(0), iter(records)
    while some := tuple(islice(remaining, TURN_ELEMENTS)):
        new.add(some)
        yield
    if not new.record_count:
        raise ValueError("a batch of no records")
    return new.assembled(new.body)


@attrs.define
class _NewBatch:
    """The records of a batch that is being built, and what its header says of them."""

    base_offset: int
    body: bytearray = attrs.field(factory=bytearray)
    record_count: int = 0
    last_offset_delta: int = -1
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP

    def add(self, records: Iterable[Record | NewRecord]) -> None:
        """Append ``records``. Raises ValueError when offsets do not increase."""
        body, base_offset = self.body, self.base_offset
        offset_delta, record_count = self.last_offset_delta, self.record_count
        base_timestamp, max_timestamp = self.base_timestamp, self.max_timestamp
        for record in records:
            previous_delta = offset_delta
            offset_delta = record.offset - base_offset if isinstance(record, Record) else previous_delta + 1
            # Compared before anything is appended: a reader would refuse the whole batch.
            if not previous_delta < offset_delta <= MAX_OFFSET_DELTA:
                raise ValueError(f"offset delta {offset_delta} after {previous_delta}")
            if not record_count:
                base_timestamp = max_timestamp = record.timestamp
            max_timestamp = max(max_timestamp, record.timestamp)
            append_record(
                body, record.timestamp - base_timestamp, offset_delta, record.key, record.value, record.headers
            )
            record_count += 1
        self.last_offset_delta, self.record_count = offset_delta, record_count
        self.base_timestamp, self.max_timestamp = base_timestamp, max_timestamp

    def assembled(
        self,
        block: ReadableBuffer,
        attributes: int = 0,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """The batch, of which ``block`` are the records as ``attributes`` say."""
        # Length, magic and CRC are as ``assemble_batch`` makes them, which costs a header object that nobody would look
        # at.
        batch = bytearray(
            _HEADER.pack(
                self.base_offset,
                BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(block),
                partition_leader_epoch,
                MAGIC,
                0,
                attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                self.record_count,
            )
        )
        batch += block
        return _with_crc(batch)


def recompress_batch(
    batch: RecordBatch,
    codec: Codec,
    *,
    level: int | None = None,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return ``batch`` with its records compressed by ``codec`` instead; nothing else changes but length and CRC.

    For topics whose ``compression.type`` is not the producer's. Errors are those of ``decompress``.
    """
    block = compress(codec, batch.payload(max_bytes=max_bytes), level)
    return assemble_batch(attrs.evolve(batch.header, attributes=batch.header.attributes & ~CODEC_MASK | codec), block)


def assemble_batch(header: BatchHeader, *blocks: ReadableBuffer) -> bytes:
    """Return the bytes of a batch whose records are ``blocks``, one behind the other.

    Length and CRC are made to go with them, in ``header`` too as to the length.
    """
    header.batch_length = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + sum(map(len, blocks))
    head = bytearray(_HEADER.pack(*attrs.astuple(header)))
    crc = crc32c(memoryview(head)[ATTRIBUTES_POSITION:])
    for block in blocks:
        crc = crc32c(block, crc)
    _CRC.pack_into(head, _CRC_POSITION, crc)
    return b"".join((head, *blocks))


def _with_crc(batch: bytearray) -> bytes:
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return bytes(batch)
