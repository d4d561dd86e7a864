"""What stands in the files of a partition, in words: the work behind ``trio-broker dump-log``.

Each function yields lines, close to those of Kafka's own ``kafka-dump-log``, so that the outputs of both tools on one
file can be laid side by side. Nothing is changed, and nothing is taken on trust: checksums are verified, and damage
is reported and not raised, since a dump is what people reach for when something is broken.

Source: Kafka's DumpLogSegments; docs/formats/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.limits import MAX_SEQUENCE
from kafka_wire.records.batch import BatchHeader, RecordBatch
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.records.record import Record
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.runtime.disk import Disk, names_in
from trio_broker.storage import batch_scan, checkpoints, file_names, producer_snapshot
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex, CorruptSnapshot
from trio_broker.storage.index_file import MAX_INDEX_BYTES
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.own_records import own_text
from trio_broker.storage.time_index import TimeIndex
from trio_broker.storage.transaction_index import TransactionIndex

DELETE_HORIZON_NONE = "empty"

BATCH_SUFFIXES = (file_names.LOG_SUFFIX, file_names.METADATA_SNAPSHOT_SUFFIX)
"""Files of record batches: segments, and snapshots of the metadata log."""


def dump(
    disk: Disk, path: PurePath, *, deep: bool = False, print_records: bool = False, topic: str | None = None
) -> Iterator[str]:
    """Yield the lines of one file, recognised by its name, or of all files of a partition's directory.

    ``deep`` goes into the batches and lists their records, ``print_records`` with keys and values too. Those of a
    broker's own topics are decoded; which topic's they are, the name of the directory says if ``topic`` does not.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
        ValueError: the name is that of no file of a log.
    """
    if disk.is_directory(path):
        for file in sorted(path / name for name in names_in(disk.list_directory(path))):
            if file.suffix in _DUMPERS or file.suffix in BATCH_SUFFIXES or file.name in _NAMED:
                yield from dump(disk, file, deep=deep, print_records=print_records, topic=topic)
        return
    if not disk.exists(path):
        raise FileNotFoundError(f"{path} does not exist")
    yield f"Dumping {path}"
    if path.suffix in BATCH_SUFFIXES:
        own_topic = _topic_of(path) if topic is None else topic
        yield from dump_log(disk, path, own_topic, deep=deep or print_records, print_records=print_records)
    elif path.suffix in _DUMPERS:
        yield from _DUMPERS[path.suffix](disk, path)
    elif path.name in _NAMED:
        yield from _NAMED[path.name](disk, path)
    else:
        raise ValueError(f"{path.name} is no file of a log: {', '.join((*BATCH_SUFFIXES, *_DUMPERS, *_NAMED))}")


def dump_log(disk: Disk, path: PurePath, topic: str, *, deep: bool, print_records: bool) -> Iterator[str]:
    """Yield a line for each batch of a ``.log`` or ``.checkpoint`` file, and for each of its records if asked for."""
    size, end = disk.status(path).size_bytes, 0
    if path.suffix == file_names.METADATA_SNAPSHOT_SUFFIX:
        end_offset, _, epoch = path.stem.partition("-")
        yield f"Snapshot end offset: {end_offset.lstrip('0') or '0'}, epoch: {epoch.lstrip('0') or '0'}"
    else:
        yield f"Log starting offset: {file_names.offset_of(path.name, file_names.LOG_SUFFIX)}"
    try:
        for located in batch_scan.whole_batches(LogFile(disk, path, read_only=True), 0, size):
            batch = RecordBatch(located.header, located.buffer)
            yield _batch_line(batch, located.position)
            if deep:
                yield from _record_lines(batch, print_records, topic)
            end = located.position + located.header.size_bytes
    except CorruptRecordBatch as error:
        yield f"no batch at position {end}: {error}"
    if end < size:
        yield f"Found {size - end} invalid bytes at the end of {path.name}"


def _batch_line(batch: RecordBatch, position: int) -> str:
    header = batch.header
    try:
        batch.verify_crc()
        valid = True
    except CorruptRecordBatch:
        valid = False
    horizon = header.base_timestamp if header.has_delete_horizon else DELETE_HORIZON_NONE
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)}"
        f" deleteHorizonMs: {horizon} position: {position} {_time_name(header)}: {header.max_timestamp}"
        f" size: {header.size_bytes} magic: {header.magic} compresscodec: {_codec_name(header)} crc: {header.crc}"
        f" isvalid: {_flag(valid)}"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type else "CreateTime"


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except KafkaError as error:
        return f"({error})"


def _topic_of(path: PurePath) -> str:
    """The topic whose records lie in a file, by its directory; a snapshot's are always those of the metadata log."""
    if path.suffix == file_names.METADATA_SNAPSHOT_SUFFIX:
        return CLUSTER_METADATA_TOPIC
    partition = file_names.parse_partition_directory(path.parent.name)
    return "" if partition is None else partition.topic


def _record_lines(batch: RecordBatch, print_records: bool, topic: str) -> Iterator[str]:
    header = batch.header
    try:
        for record in batch.records():
            yield _record_line(header, record, print_records, topic)
    except KafkaError as error:
        yield f"| unreadable: {error}"


def _record_line(header: BatchHeader, record: Record, print_records: bool, topic: str) -> str:
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + record.offset - header.base_offset) & MAX_SEQUENCE
    names = ",".join(name for name, _ in record.headers)
    line = (
        f"| offset: {record.offset} {_time_name(header)}: {record.timestamp} keySize: {_length(record.key)}"
        f" valueSize: {_length(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )
    if header.is_control:
        return f"{line} {_control_text(record)}"
    if print_records:
        try:
            if own := own_text(topic, record.key, record.value):
                return f"{line} {own}"
        except WireError as error:
            line += f" undecodable: {error}"
        return f"{line} key: {_text(record.key)} payload: {_text(record.value)}"
    return line


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _control_text(record: Record) -> str:
    control = read_control_record(record)
    if isinstance(control, EndTransactionMarker):
        return f"endTxnMarker: {control.type.name} coordinatorEpoch: {control.coordinator_epoch}"
    return f"controlType: {control.type.name if control.type is not None else 'unknown'}"


def _text(data: bytes | None) -> str:
    """Return bytes as UTF-8 text on one line, what is not text as escapes."""
    if data is None:
        return "null"
    return data.decode(errors="backslashreplace").replace("\n", "\\n").replace("\r", "\\r")


def _base_offset(path: PurePath) -> int:
    offset = file_names.offset_of(path.name, path.suffix)
    if offset is None:
        raise ValueError(f"{path.name} is not named by an offset")
    return offset


def dump_offset_index(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the entries of a ``.index`` file, and where one does not point at the batch it names."""
    base_offset = _base_offset(path)
    log_path = path.with_suffix(file_names.LOG_SUFFIX)
    log_bytes = disk.status(log_path).size_bytes if disk.exists(log_path) else MAX_INDEX_BYTES
    try:
        index = OffsetIndex.load(disk, path, base_offset, MAX_INDEX_BYTES, log_bytes, is_active=True)
    except CorruptIndex as error:
        yield f"corrupt: {error}"
        return
    file = LogFile(disk, log_path, read_only=True) if disk.exists(log_path) else None
    for entry in index.entries:
        yield f"offset: {entry.offset} position: {entry.position}"
        if file is not None:
            span = next(_spans_at(file, entry.position, log_bytes), None)
            if span is None or span.last_offset != entry.offset:
                found = "no batch" if span is None else f"the batch ending at {span.last_offset}"
                yield f"Index offset: {entry.offset}, but the log has {found} at position {entry.position}"


def _spans_at(file: LogFile, position: int, end: int) -> Iterator[batch_scan.BatchSpan]:
    try:
        yield from batch_scan.spans(file, position, end)
    except CorruptRecordBatch:
        return


def dump_time_index(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the entries of a ``.timeindex`` file."""
    try:
        for entry in TimeIndex.load(disk, path, _base_offset(path), MAX_INDEX_BYTES, is_active=True).entries:
            yield f"timestamp: {entry.timestamp_ms} offset: {entry.offset}"
    except CorruptIndex as error:
        yield f"corrupt: {error}"


def dump_transaction_index(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the aborted transactions of a ``.txnindex`` file."""
    try:
        for aborted in TransactionIndex(disk, path).transactions:
            yield (
                f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset}"
                f" lastOffset: {aborted.last_offset} lastStableOffset: {aborted.last_stable_offset}"
            )
    except CorruptIndex as error:
        yield f"corrupt: {error}"


def dump_snapshot(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the producers of a ``.snapshot`` file."""
    try:
        entries = producer_snapshot.decode(disk.read_file(path), path.name)
    except CorruptSnapshot as error:
        yield f"corrupt: {error}"
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        remembered = (
            f"lastSequence: {last.last_sequence} lastOffset: {last.last_offset} offsetDelta: {last.offset_delta}"
            if last
            else "no batches"
        )
        open_since = entry.transaction_first_offset
        yield (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} {remembered}"
            f" lastTimestamp: {entry.last_timestamp_ms} coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {'None' if open_since is None else open_since}"
        )


def dump_checkpoint(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the entries of a checkpoint file."""
    try:
        yield from checkpoints.read_checkpoint(disk, path)
    except CorruptCheckpoint as error:
        yield f"corrupt: {error}"


def dump_text(disk: Disk, path: PurePath) -> Iterator[str]:
    """Yield the lines of a text file."""
    yield from disk.read_file(path).decode(errors="backslashreplace").splitlines()


_DUMPERS = {
    file_names.INDEX_SUFFIX: dump_offset_index,
    file_names.TIME_INDEX_SUFFIX: dump_time_index,
    file_names.TRANSACTION_INDEX_SUFFIX: dump_transaction_index,
    file_names.SNAPSHOT_SUFFIX: dump_snapshot,
}
_NAMED = {
    file_names.LEADER_EPOCH_CHECKPOINT: dump_checkpoint,
    file_names.RECOVERY_POINT_CHECKPOINT: dump_checkpoint,
    file_names.LOG_START_OFFSET_CHECKPOINT: dump_checkpoint,
    file_names.HIGH_WATERMARK_CHECKPOINT: dump_checkpoint,
    file_names.CLEANER_CHECKPOINT: dump_checkpoint,
    file_names.SCRUBBER_CHECKPOINT: dump_checkpoint,
    file_names.PARTITION_METADATA: dump_text,
    file_names.META_PROPERTIES: dump_text,
    file_names.CLEAN_SHUTDOWN_MARKER: dump_text,
    file_names.QUORUM_STATE: dump_text,
}
