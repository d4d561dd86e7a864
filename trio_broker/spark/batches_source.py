"""The format ``trio_broker_batches``: one row for each record batch, made from its header alone.

    spark.read.format("trio_broker_batches").option("subscribe", "orders").load().groupBy("codec").sum("size_bytes")

Nothing is inflated and no record is decoded, so a log is scanned as fast as its bytes can be read; ``verifyCrc=true``
compares each batch's checksum as well. The options of ``trio_broker`` select the offsets; those about records
(``includeHeaders``, ``columns``, ``batchRows`` …) are ignored. Batches are rows as they lie in the log, also markers
and batches of aborted transactions. The default isolation level is ``read_uncommitted``, so batches of open
transactions are rows, too. There are no streams of batches.

======================  =========  ===================================================================================
column                  type       meaning
======================  =========  ===================================================================================
topic, partition                   of the log
base_offset             bigint     of its first record when it was appended
last_offset             bigint     the last offset of its range
leader_epoch            int        of the leader that appended it
record_count            int        0 where compaction emptied it
size_bytes              bigint     with its header, compressed
codec                   string     none, gzip, snappy, lz4 or zstd
timestamp_type          int        as in ``trio_broker``: 0 create time, 1 log append time
base_timestamp          timestamp  of the first record, or what compaction put there; null for none
max_timestamp           timestamp  the highest of a record; null for none
producer_id             bigint     -1 for none, as its epoch and sequence
producer_epoch          int
base_sequence           int
is_transactional        boolean
is_control              boolean    a marker, which ends a transaction
crc_ok                  boolean    null unless ``verifyCrc`` is true
origin                  string     the broker or the file that it was read from
======================  =========  ===================================================================================

Source: kafka_wire.records.batch; docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trio_broker.spark.errors import OptionError
from trio_broker.spark.job_errors import CutTraceback, without_traceback
from trio_broker.spark.options import kafka_options, read_option_table
from trio_broker.spark.options.option import Mode, with_defaults
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.tasks import ReadTask
from trio_broker.spark.workarounds.early_end import ending_quietly
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from trio_broker.spark.batch_table import Int64Array
    from trio_broker.spark.header_scan import ChunkBatches

FORMAT: Final = "trio_broker_batches"

VERIFY_CRC: Final = read_option_table.VERIFY_CRC.name
ISOLATION_LEVEL: Final = kafka_options.ISOLATION_LEVEL.name

DEFAULTS: Final[Mapping[str, str]] = {VERIFY_CRC: "false", ISOLATION_LEVEL: "read_uncommitted"}
"""The defaults that differ from those of ``trio_broker``."""

COLUMNS: Final[Mapping[str, str]] = {
    "topic": "string",
    "partition": "int",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "leader_epoch": "int",
    "record_count": "int",
    "size_bytes": "bigint",
    "codec": "string",
    "timestamp_type": "int",
    "base_timestamp": "timestamp",
    "max_timestamp": "timestamp",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "base_sequence": "int",
    "is_transactional": "boolean",
    "is_control": "boolean",
    "crc_ok": "boolean",
    "origin": "string",
}
"""Names and Spark's types."""

DDL_TYPES: Final = {"timestamp": "timestamp_ltz"}
"""Types whose name in a schema differs: plain TIMESTAMP is another type under some values of
spark.sql.timestampType."""

MICROSECONDS: Final = 1000
MAX_TIMESTAMP_MS: Final = (1 << 63) // MICROSECONDS - 1
"""Beyond it the microseconds of Spark's timestamps overflow; such a time, 290,000 years away, becomes null."""


class TrioBrokerBatchesDataSource(DataSource):
    """Batches as a frame. Methods have PySpark's names and are called by it, by keyword."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @without_traceback
    def schema(self) -> str:
        """Return all columns.

        Raises:
            OptionError: an option is wrong.
        """
        batch_options(self.options)
        return ", ".join(f"`{name}` {DDL_TYPES.get(kind, kind)}" for name, kind in COLUMNS.items())

    @without_traceback
    def reader(self, schema: StructType) -> BatchesReader:
        """Return the reader of the columns in ``schema``.

        Raises:
            OptionError: an option is wrong, or a column.
        """
        return BatchesReader(batch_options(self.options), columns_of(schema))


@attrs.frozen
class BatchesTask:
    """One slice of a partition and the columns of its rows; see ``header_scan`` for ``includes_cut_batch``."""

    task: ReadTask
    columns: tuple[str, ...]
    includes_cut_batch: bool


class BatchesPartition(InputPartition):
    """The value that PySpark sends to a worker. ``value`` is None where there is nothing to read."""

    value: BatchesTask | None

    def __init__(self, task: BatchesTask) -> None:
        super().__init__(task)


class BatchesReader(DataSourceReader):
    """The reader of one frame."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Return the slices to read.

        Raises:
            OptionError, DataLoss, SourceUnavailable: as ``plan_batch_tasks``.
        """
        return [BatchesPartition(task) for task in plan_batches(self._options, self._columns)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a slice, in a worker."""
        if partition.value is not None:
            with keeping_loaded("batches"), CutTraceback(), ending_quietly():
                yield from read_batches(partition.value)


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a job, with the defaults of this format.

    Raises:
        OptionError: an option is wrong.
    """
    return read_options(with_defaults(options, DEFAULTS), Mode.BATCH)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a schema names, which must have the types of ``COLUMNS``.

    Raises:
        OptionError: a column does not exist, or has another type.
    """
    if not schema.fields:
        raise OptionError("schema", f"names no column; there are {', '.join(COLUMNS)}")
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise OptionError("schema", f"{field.name!r} is no column; there are {', '.join(COLUMNS)}")
        found = field.dataType.simpleString()
        if found != kind:
            raise OptionError("schema", f"{field.name} is of type {kind}, not {found}; cast it in the query")
    return tuple(schema.names)


def plan_batches(options: ReadOptions, columns: tuple[str, ...]) -> list[BatchesTask]:
    """Return the slices to read, in the order of their offsets.

    Raises:
        OptionError, DataLoss, SourceUnavailable: as ``plan_batch_tasks``.
    """
    from trio_broker.spark.task_planning import plan_batch_tasks

    planned: list[BatchesTask] = []
    seen = set()
    for task in plan_batch_tasks(options, ()):
        partition = task.offsets.partition
        planned.append(BatchesTask(task, columns, includes_cut_batch=partition not in seen))
        seen.add(partition)
    return planned


# --- In a worker ---


def read_batches(slice_: BatchesTask) -> Iterator[pa.RecordBatch]:
    """Yield a row for each batch of a slice.

    Raises:
        CorruptData: bytes can be no batch; the rows before them have been yielded.
        SparkJobError: as the transport.
    """
    from trio_broker.spark.header_scan import batches_of

    for batches in batches_of(slice_.task, includes_cut_batch=slice_.includes_cut_batch):
        yield rows_of(batches, slice_)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow types of columns, as PySpark requires them."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, kinds[COLUMNS[name]]) for name in columns])


def rows_of(batches: ChunkBatches, slice_: BatchesTask) -> pa.RecordBatch:
    """Return the rows of some batches, with the columns of the slice."""
    import pyarrow as pa

    schema = arrow_schema(slice_.columns)
    arrays = [_MAKERS[field.name](batches, slice_, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_Maker = Callable[["ChunkBatches", BatchesTask, Any], "pa.Array"]


def _column(name: str) -> _Maker:
    """Return a function that makes a column of the header field ``name``."""

    def make(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
        import pyarrow as pa

        return pa.array(getattr(batches.table, name)[batches.chosen]).cast(kind)

    return make


def _constant(value: Callable[[ChunkBatches, BatchesTask], Any]) -> _Maker:
    """Return a function that makes a column with the same value in all rows."""

    def make(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
        import pyarrow as pa

        count = len(range(len(batches.table))[batches.chosen])
        return pa.repeat(pa.scalar(value(batches, slice_), kind), count)

    return make


def _timestamps(name: str) -> _Maker:
    """Return a function that makes a column of a timestamp in milliseconds; negative ones are null."""

    def make(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        found: Int64Array = getattr(batches.table, name)[batches.chosen]
        missing = (found < 0) | (found > MAX_TIMESTAMP_MS)
        return pa.array(np.where(missing, 0, found) * MICROSECONDS, pa.int64(), mask=missing).cast(kind)

    return make


def _flags(is_set: Callable[[Int64Array], np.ndarray[Any, Any]]) -> _Maker:
    """Return a function that makes a column of the attributes."""

    def make(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
        import pyarrow as pa

        return pa.array(is_set(batches.table.attributes[batches.chosen])).cast(kind)

    return make


def _codecs(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    from kafka_wire.records.batch import CODEC_MASK
    from trio_broker.spark.batch_table import CODECS, codec_name

    names = pa.array([codec_name(number) for number in range(CODECS)], kind)
    return names.take(pa.array(batches.table.attributes[batches.chosen] & CODEC_MASK))


def _crc_ok(batches: ChunkBatches, slice_: BatchesTask, kind: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    rows = range(len(batches.table))[batches.chosen]
    if not slice_.task.decoding.verify_crc:
        return pa.nulls(len(rows), kind)
    right = np.ones(len(rows), np.bool_)
    right[[row - rows.start for row in batches.wrong_checksums()]] = False
    return pa.array(right, kind)


_TIMESTAMP_TYPE_SHIFT: Final = 3
_TRANSACTIONAL_SHIFT: Final = 4
_CONTROL_SHIFT: Final = 5

_MAKERS: Final[Mapping[str, _Maker]] = {
    "topic": _constant(lambda batches, slice_: slice_.task.offsets.partition.topic),
    "partition": _constant(lambda batches, slice_: slice_.task.offsets.partition.partition),
    "base_offset": _column("base_offsets"),
    "last_offset": _column("last_offsets"),
    "leader_epoch": _column("leader_epochs"),
    "record_count": _column("record_counts"),
    "size_bytes": _column("sizes"),
    "codec": _codecs,
    "timestamp_type": _flags(lambda attributes: attributes >> _TIMESTAMP_TYPE_SHIFT & 1),
    "base_timestamp": _timestamps("base_timestamps"),
    "max_timestamp": _timestamps("max_timestamps"),
    "producer_id": _column("producer_ids"),
    "producer_epoch": _column("producer_epochs"),
    "base_sequence": _column("base_sequences"),
    "is_transactional": _flags(lambda attributes: (attributes >> _TRANSACTIONAL_SHIFT & 1) != 0),
    "is_control": _flags(lambda attributes: (attributes >> _CONTROL_SHIFT & 1) != 0),
    "crc_ok": _crc_ok,
    "origin": _constant(lambda batches, slice_: batches.chunk.origin),
}
