"""The options of a reading job, except those that begin with ``kafka.``.

``read_options`` reads them, ``docs/spark-options.md`` is generated from them.

Source: Spark's Kafka integration guide and its KafkaSourceProvider.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Final

from kafka_wire.limits import INT32_MAX
from kafka_wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, MAX_DECOMPRESSED_BYTES
from trio_broker.spark.chunk import DEFAULT_BATCH_ROWS
from trio_broker.spark.options.offset_specs import (
    NoMatch,
    parse_offsets,
    parse_partitions_json,
    parse_timestamp,
    parse_timestamps_json,
)
from trio_broker.spark.options.option import BOOLEAN, DURATION_MS, NAMES, TEXT, Mode, Option, ValueType, integer, one_of
from trio_broker.spark.options.selection import Assign, Subscribe, SubscribePattern

NOT_IN_SPARK: Final = "Not there."
BATCH_ONLY: Final = frozenset({Mode.BATCH})
STREAM_ONLY: Final = frozenset({Mode.STREAM})

MOST_BATCH_ROWS: Final = 1 << 20
"""Rows of one Arrow batch. More than is useful; they are held twice on their way to Spark."""

LEAST_INFLATED_BYTES: Final = 1024 * 1024
"""The smallest limit of an inflated batch: the default ``message.max.bytes``, below which ordinary batches fail."""


class TransportKind(Enum):
    """The transport: Kafka's protocol, or the broker's files."""

    AUTO = "auto"
    WIRE = "wire"
    FILES = "files"


def _parse_pattern(text: str) -> SubscribePattern:
    try:
        re.compile(TEXT.parse(text))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return SubscribePattern(text)


def _parse_paths(text: str) -> tuple[str, ...]:
    """Read directories; a ``file:`` address is one, any other address is not."""
    return tuple(_parse_path(path) for path in NAMES.parse(text))


def _parse_json_paths(text: str) -> tuple[str, ...]:
    try:
        paths = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is no JSON: {error}") from None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path.strip() for path in paths):
        raise ValueError(f"{text!r} is no JSON list of directories")
    return tuple(_parse_path(path.strip()) for path in paths)


def _parse_path(text: str) -> str:
    scheme, separator, rest = text.partition(":")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme):
        return text
    if scheme.lower() != "file":
        raise ValueError(f"{text} is not a directory of this machine; only those can be read")
    return "/" + rest.lstrip("/")


OFFSETS: Final = ValueType("earliest, latest, JSON", parse_offsets)
TIMESTAMP_MS: Final = ValueType("integer", parse_timestamp)
TIMESTAMPS: Final = ValueType("JSON", parse_timestamps_json)

ASSIGN: Final = Option(
    "assign",
    ValueType("JSON", lambda text: Assign(parse_partitions_json(text))),
    None,
    'These partitions: `{"topicA": [0, 1], "topicB": [2]}`. Exactly one of `assign`, `subscribe` and `subscribePattern`'
    " is given.",
)
SUBSCRIBE: Final = Option(
    "subscribe",
    ValueType(NAMES.form, lambda text: Subscribe(tuple(sorted(set(NAMES.parse(text)))))),
    None,
    "These topics, with all their partitions.",
)
SUBSCRIBE_PATTERN: Final = Option(
    "subscribePattern",
    ValueType("regular expression", _parse_pattern),
    None,
    "The topics in whose names the expression is found, with all their partitions; internal topics never. `^…$` is for"
    " whole names.",
    difference="A regular expression of Python, not of Java.",
)
STARTING_TIMESTAMP: Final = Option(
    "startingTimestamp",
    TIMESTAMP_MS,
    None,
    "Begin in every partition at the first record as young as this or younger, in milliseconds since 1970. Stronger"
    " than the two below. A stream's checkpoint is stronger than all three.",
)
STARTING_OFFSETS_BY_TIMESTAMP: Final = Option(
    "startingOffsetsByTimestamp",
    TIMESTAMPS,
    None,
    'The same with a time for each partition, all of them: `{"topicA": {"0": 1700000000000}}`. Stronger than'
    " `startingOffsets`.",
)
STARTING_OFFSETS: Final = Option(
    "startingOffsets",
    OFFSETS,
    None,
    'Where to begin: `earliest`, `latest` (streams only), or an offset for each partition, all of them: `{"topicA":'
    ' {"0": 23, "1": -2}}`, where -2 is earliest and -1 latest. Partitions that a stream finds later begin at'
    " earliest.",
    default_text="`earliest`; in streams `latest`",
    difference="Numbers in quotes, fractions and names given twice are errors.",
)
STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY: Final = Option(
    "startingOffsetsByTimestampStrategy",
    one_of(NoMatch),
    NoMatch.ERROR,
    "What to do in a partition without a record that young: fail, or begin at its end.",
)
ENDING_TIMESTAMP: Final = Option(
    "endingTimestamp",
    TIMESTAMP_MS,
    None,
    "End in every partition before the first record as young as this or younger; where there is none, at the end of the"
    " partition. Stronger than the two below.",
    modes=BATCH_ONLY,
    difference="An error in streams, and when it is before `startingTimestamp`.",
)
ENDING_OFFSETS_BY_TIMESTAMP: Final = Option(
    "endingOffsetsByTimestamp",
    TIMESTAMPS,
    None,
    "The same with a time for each partition. Stronger than `endingOffsets`.",
    modes=BATCH_ONLY,
)
ENDING_OFFSETS: Final = Option(
    "endingOffsets",
    OFFSETS,
    None,
    "Where to end: `latest`, or for each partition the offset after the last one that is read, or -1 for the latest.",
    form="latest, JSON",
    modes=BATCH_ONLY,
    default_text="`latest`",
)
FAIL_ON_DATA_LOSS: Final = Option(
    "failOnDataLoss",
    BOOLEAN,
    True,
    "Fail when records that were to be read are gone, by retention, truncation or with their topic; otherwise warn, and"
    " read what is there.",
)
MIN_PARTITIONS: Final = Option(
    "minPartitions",
    integer(1, INT32_MAX),
    None,
    "About how many tasks there are to be at least: large partitions are cut. Otherwise there is one for each"
    " partition.",
)
MAX_RECORDS_PER_PARTITION: Final = Option(
    "maxRecordsPerPartition",
    integer(1),
    None,
    "The most offsets that one task is given.",
    difference="There a batch heeds it only beside `minPartitions` that asks for more tasks than there are partitions.",
)
MAX_OFFSETS_PER_TRIGGER: Final = Option(
    "maxOffsetsPerTrigger",
    integer(1),
    None,
    "The most offsets of one micro-batch, shared out among the partitions in proportion to what each has to give; at"
    " least one of each.",
    modes=STREAM_ONLY,
)
MIN_OFFSETS_PER_TRIGGER: Final = Option(
    "minOffsetsPerTrigger",
    integer(1),
    None,
    "Wait with a micro-batch until there are so many offsets, or `maxTriggerDelay` has passed since the last one.",
    modes=STREAM_ONLY,
    difference="Not heeded by `availableNow`, which would otherwise leave the rest behind.",
)
MAX_TRIGGER_DELAY: Final = Option(
    "maxTriggerDelay",
    DURATION_MS,
    15 * 60_000,
    "The longest that `minOffsetsPerTrigger` makes a micro-batch wait.",
    modes=STREAM_ONLY,
    default_text="`15m`",
    attribute="max_trigger_delay_ms",
)
INCLUDE_HEADERS: Final = Option(
    "includeHeaders",
    BOOLEAN,
    False,
    "Rows have a column `headers`, null for a record that has none.",
)
POLL_TIMEOUT_MS: Final = Option(
    "kafkaConsumer.pollTimeoutMs",
    integer(1),
    120_000,
    "How long a task waits for records that must be there, through changes of leaders and restarts of brokers, in"
    " milliseconds.",
    difference="There the default follows `spark.network.timeout`.",
    attribute="poll_timeout_ms",
)
FETCH_OFFSET_RETRIES: Final = Option(
    "fetchOffset.numRetries",
    integer(1, INT32_MAX),
    3,
    "How often the brokers are asked for offsets before the query fails.",
    attribute="fetch_offset_retries",
)
FETCH_OFFSET_RETRY_INTERVAL_MS: Final = Option(
    "fetchOffset.retryIntervalMs",
    integer(0),
    1000,
    "The pause in between, in milliseconds.",
    difference="The guide there says 10; 1000 is what it does.",
    attribute="fetch_offset_retry_interval_ms",
)
GROUP_ID_PREFIX: Final = Option(
    "groupIdPrefix",
    TEXT,
    None,
    "The beginning of a group's name.",
    difference="Has no effect: there is no group.",
)
TRANSPORT: Final = Option(
    "transport",
    one_of(TransportKind),
    TransportKind.AUTO,
    "`wire` reads over Kafka's protocol; `files` reads the log files of a trio-broker that the readers can see. `auto`"
    " is `files` if `path` is given, else `wire`.",
    difference=NOT_IN_SPARK,
)
PATH: Final[Option[tuple[str, ...]]] = Option(
    "path",
    ValueType("directory,directory…", _parse_paths),
    (),
    "Where the readers see the broker's log directories. Without `kafka.bootstrap.servers` they are read as they are:"
    " a backup, or a broker that does not run.",
    default_text="where the broker sees them",
    difference=NOT_IN_SPARK,
)
PATHS: Final[Option[tuple[str, ...]]] = Option(
    "paths",
    ValueType("JSON", _parse_json_paths),
    (),
    "The same as a list, added to `path`: what Spark makes of `load([…])`.",
    default_text="none",
    difference=NOT_IN_SPARK,
)
ADMIN_URL: Final[Option[tuple[str, ...]]] = Option(
    "adminUrl",
    NAMES,
    (),
    "The addresses of the brokers' admin pages, which list the files: `http://127.0.0.1:9644`. By `https://` they are"
    " trusted as brokers are (`kafka.ssl.`), and the job logs in as there if there is no `adminToken`.",
    form="URL,URL…",
    default_text="as each broker says itself",
    difference=NOT_IN_SPARK,
)
ADMIN_TOKEN: Final = Option(
    "adminToken",
    TEXT,
    None,
    "The token of the broker's admin page, where `admin.token.file` asks for one; a viewer's is enough. Spark"
    " redacts it in its own pages.",
    form="token",
    default_text="none",
    difference=NOT_IN_SPARK,
)
COLUMNS: Final = Option(
    "columns",
    NAMES,
    None,
    "The columns of a row, in this order. What is not named is not decoded. A schema given to the reader does the"
    " same.",
    default_text="all but `headers`",
    difference=NOT_IN_SPARK + " Spark does not inform Python sources what a query uses.",
)
BATCH_ROWS: Final = Option(
    "batchRows",
    integer(1, MOST_BATCH_ROWS),
    DEFAULT_BATCH_ROWS,
    "Rows that go to Spark at once.",
    difference=NOT_IN_SPARK,
)
VERIFY_CRC: Final = Option(
    "verifyCrc",
    BOOLEAN,
    None,
    "Compare the checksum of every record batch.",
    default_text="`kafka.check.crcs`",
    difference=NOT_IN_SPARK,
)
MAX_INFLATED_BYTES: Final = Option(
    "maxInflatedBytes",
    integer(LEAST_INFLATED_BYTES, MAX_DECOMPRESSED_BYTES),
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    "What one compressed record batch may grow to, in bytes; a larger one is an error.",
    difference=NOT_IN_SPARK,
)

OPTION_GROUPS: Final[dict[str, tuple[Option[Any], ...]]] = {
    "What to read": (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN),
    "Where to begin": (
        STARTING_TIMESTAMP,
        STARTING_OFFSETS_BY_TIMESTAMP,
        STARTING_OFFSETS,
        STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY,
    ),
    "Where to end": (ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS),
    "Rows": (INCLUDE_HEADERS, COLUMNS, BATCH_ROWS, VERIFY_CRC, MAX_INFLATED_BYTES),
    "Tasks and micro-batches": (
        MIN_PARTITIONS,
        MAX_RECORDS_PER_PARTITION,
        MAX_OFFSETS_PER_TRIGGER,
        MIN_OFFSETS_PER_TRIGGER,
        MAX_TRIGGER_DELAY,
    ),
    "Transport": (TRANSPORT, PATH, PATHS, ADMIN_URL, ADMIN_TOKEN),
    "Losses and failures": (
        FAIL_ON_DATA_LOSS,
        POLL_TIMEOUT_MS,
        FETCH_OFFSET_RETRIES,
        FETCH_OFFSET_RETRY_INTERVAL_MS,
        GROUP_ID_PREFIX,
    ),
}
"""All of them, in the order of the documentation."""

OPTIONS: Final = tuple(option for options in OPTION_GROUPS.values() for option in options)
