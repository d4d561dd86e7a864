"""The settings of a reading job, made from the options that a user gave.

The names, the defaults and the rules are those of Spark's own Kafka source, so that a job moves by changing ``format``
alone; ``docs/spark-options.md`` has the differences. Pure: no broker is asked anything yet.

Source: KafkaSourceProvider of Spark's connector.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options import read_option_table as table
from trio_broker.spark.options.kafka_options import (
    BOOTSTRAP_SERVERS,
    CHECK_CRCS,
    ISOLATION_LEVEL,
    PREFIX,
    ReadIsolation,
    kafka_hint,
)
from trio_broker.spark.options.kafka_settings import KafkaSettings, read_kafka_settings
from trio_broker.spark.options.offset_specs import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetSpec,
    SpecificOffsets,
    TimestampsByPartition,
    listed,
)
from trio_broker.spark.options.option import GivenOptions, Mode, Option, hint
from trio_broker.spark.options.read_option_table import TransportKind
from trio_broker.spark.options.selection import Assign, Selection, Subscribe, SubscribePattern
from trio_broker.spark.schema import check_columns, ddl_of, default_columns

__all__ = [
    "Assign",
    "KafkaSettings",
    "Mode",
    "ReadOptions",
    "Selection",
    "Subscribe",
    "SubscribePattern",
    "TransportKind",
    "read_options",
    "schema_of",
]

WRITE_ONLY: Final = "topic"
"""An option of writers. A table that is defined with it may be for writing alone, and then selects nothing to read."""

log = logging.getLogger(__name__)

STRATEGIES: Final[tuple[Option[Any], ...]] = (table.ASSIGN, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN)

OF_OTHERS: Final = frozenset(
    {
        *(
            "topic",
            "createtopics",
            "includetimestamp",
            "deduplicationheader",
            "deliveryguarantee",
            "writeid",
            "committopic",
        ),
        "losttransactions",
        "serialization.format",
    }
)
"""Options of the sink, for jobs that read and write with the same ones, and one that catalogs add; in lower case."""


@attrs.frozen
class ReadOptions:
    """A reading job. Fields that are named after an option have its value; durations are in milliseconds.

    ``ending`` is None in a stream. ``transport`` is never AUTO: it has been decided. ``starting_option`` and
    ``ending_option`` are the names of the options that ``starting`` and ``ending`` came from, for errors.
    """

    kafka: KafkaSettings
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec | None
    starting_option: str = table.STARTING_OFFSETS.name
    ending_option: str = table.ENDING_OFFSETS.name
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = table.MAX_TRIGGER_DELAY.required_default
    fail_on_data_loss: bool = table.FAIL_ON_DATA_LOSS.required_default
    include_headers: bool = table.INCLUDE_HEADERS.required_default
    read_committed: bool = True
    transport: TransportKind = TransportKind.WIRE
    path: tuple[str, ...] = ()
    admin_urls: tuple[str, ...] = ()
    admin_token: str | None = attrs.field(default=None, repr=False)
    columns: tuple[str, ...] = default_columns(include_headers=False)
    batch_rows: int = table.BATCH_ROWS.required_default
    verify_crc: bool = CHECK_CRCS.required_default
    max_inflated_bytes: int = table.MAX_INFLATED_BYTES.required_default
    poll_timeout_ms: int = table.POLL_TIMEOUT_MS.required_default
    fetch_offset_retries: int = table.FETCH_OFFSET_RETRIES.required_default
    fetch_offset_retry_interval_ms: int = table.FETCH_OFFSET_RETRY_INTERVAL_MS.required_default

    @property
    def is_offline(self) -> bool:
        """Whether directories are read without any broker."""
        return not self.kafka.bootstrap_servers

    def decoding(self, columns: tuple[str, ...] | None = None) -> Decoding:
        """Return how batches are decoded, for ``columns`` or those of the options."""
        return Decoding(
            columns=self.columns if columns is None else columns,
            read_committed=self.read_committed,
            verify_crc=self.verify_crc,
            batch_rows=self.batch_rows,
            max_inflated_bytes=self.max_inflated_bytes,
        )


def read_options(options: Mapping[str, str], mode: Mode) -> ReadOptions:
    """Return the job that ``options`` describe.

    Raises:
        OptionError: an option is missing, unknown, contradicts another one, or has a value that means nothing.
    """
    given = GivenOptions(options)
    _check_names(given)
    _check_mode(given, mode)
    kafka = read_kafka_settings(given)
    starting, starting_option = _starting(given, mode)
    ending, ending_option = _ending(given) if mode is Mode.BATCH else (None, table.ENDING_OFFSETS)
    _check_order(starting, ending, given.spelling(ending_option.name))
    _check_triggers(given)
    verify_crc = given.read(table.VERIFY_CRC)
    derived = {
        "transport": _transport(given),
        "path": given.read_required(table.PATH) + given.read_required(table.PATHS),
        "admin_urls": _admin_urls(given),
        "columns": _columns(given),
        "verify_crc": given.read_required(CHECK_CRCS) if verify_crc is None else verify_crc,
    }
    return ReadOptions(
        kafka=kafka,
        selection=_selection(given),
        starting=starting,
        ending=ending,
        starting_option=given.spelling(starting_option.name),
        ending_option=given.spelling(ending_option.name),
        read_committed=given.read(ISOLATION_LEVEL) is ReadIsolation.READ_COMMITTED,
        **{**given.read_fields(ReadOptions, table.OPTIONS), **derived},
    )


def read_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that ``options`` name. Spark needs them before it says whether the query is a stream.

    Raises:
        OptionError: a column does not exist.
    """
    return _columns(GivenOptions(options))


def schema_of(options: Mapping[str, str]) -> str:
    """Return the columns of a frame as DDL.

    Raises:
        OptionError: an option is wrong for batches and streams alike.
    """
    if WRITE_ONLY in options:
        return ddl_of(read_columns(options))
    # A stream refuses options of batches, while a batch only warns of those of streams: so the batch decides here.
    try:
        columns = read_options(options, Mode.STREAM).columns
    except OptionError:
        columns = read_options(options, Mode.BATCH).columns
    return ddl_of(columns)


def _check_names(given: GivenOptions) -> None:
    """Refuse unknown names; those under ``kafka.`` are checked with their values."""
    known = {option.name.lower() for option in table.OPTIONS} | OF_OTHERS
    for name in given.names():
        if name not in known and not name.startswith(PREFIX):
            meant = hint(name, [option.name for option in table.OPTIONS]) or kafka_hint(name)
            raise OptionError(given.spelling(name), f"there is no such option{meant}")


def _check_mode(given: GivenOptions, mode: Mode) -> None:
    """Refuse an end of a stream, and warn of triggers of a batch."""
    foreign = [option for option in table.OPTIONS if option in given and mode not in option.modes]
    if not foreign:
        return
    if mode is Mode.STREAM:
        raise given.error(foreign[0], "a streaming query has no end")
    log.warning("these options have no effect in a batch query: %s", ", ".join(option.name for option in foreign))


def _selection(given: GivenOptions) -> Selection:
    names = ", ".join(option.name for option in STRATEGIES)
    chosen = [option for option in STRATEGIES if option in given]
    if not chosen:
        raise OptionError(table.SUBSCRIBE.name, f"nothing says what to read; give one of {names}")
    if len(chosen) > 1:
        raise given.error(chosen[1], f"{given.spelling(chosen[0].name)!r} is given, too; give only one of {names}")
    selection: Selection = given.read_required(chosen[0])
    return selection


def _starting(given: GivenOptions, mode: Mode) -> tuple[OffsetSpec, Option[Any]]:
    """Return where to begin and the option that says so; a batch cannot begin at the end."""
    default = Earliest() if mode is Mode.BATCH else Latest()
    spec, option = _strongest(
        given, table.STARTING_TIMESTAMP, table.STARTING_OFFSETS_BY_TIMESTAMP, table.STARTING_OFFSETS, default
    )
    if mode is Mode.BATCH:
        if isinstance(spec, Latest):
            raise given.error(option, "a batch query cannot begin at the latest offset: it would read nothing")
        _refuse_sentinel(given, option, spec, LATEST_OFFSET, "a batch query cannot begin at the latest offset")
    return spec, option


def _ending(given: GivenOptions) -> tuple[OffsetSpec, Option[Any]]:
    """Return where to end and the option that says so; nothing ends at the beginning."""
    spec, option = _strongest(
        given, table.ENDING_TIMESTAMP, table.ENDING_OFFSETS_BY_TIMESTAMP, table.ENDING_OFFSETS, Latest()
    )
    if isinstance(spec, Earliest):
        raise given.error(option, "a query cannot end at the earliest offset: it would read nothing")
    _refuse_sentinel(given, option, spec, EARLIEST_OFFSET, "a query cannot end at the earliest offset")
    return spec, option


def _strongest(
    given: GivenOptions,
    timestamp: Option[int],
    timestamps: Option[Mapping[TopicPartition, int]],
    offsets: Option[Earliest | Latest | SpecificOffsets],
    default: OffsetSpec,
) -> tuple[OffsetSpec, Option[Any]]:
    """Return the value of the strongest of the three options, and which it is; the others are not even parsed."""
    ranked: tuple[Option[Any], ...] = (timestamp, timestamps, offsets)
    chosen = [option for option in ranked if option in given]
    if len(chosen) > 1:
        log.warning("%s is stronger than %s", chosen[0].name, ", ".join(option.name for option in chosen[1:]))
    no_match = given.read_required(table.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY)
    if timestamp in given:
        return GlobalTimestamp(given.read_required(timestamp), no_match), timestamp
    if timestamps in given:
        return TimestampsByPartition(given.read_required(timestamps), no_match), timestamps
    return given.read(offsets) or default, offsets


def _refuse_sentinel(given: GivenOptions, option: Option[Any], spec: OffsetSpec, sentinel: int, reason: str) -> None:
    if isinstance(spec, SpecificOffsets):
        found = [partition for partition, offset in spec.offsets.items() if offset == sentinel]
        if found:
            raise given.error(option, f"{listed(found)}: {reason} ({sentinel})")


def _check_order(starting: OffsetSpec, ending: OffsetSpec | None, option: str) -> None:
    """Refuse an end before its beginning, as far as that shows without asking the brokers."""
    match starting, ending:
        case GlobalTimestamp(start_ms), GlobalTimestamp(end_ms) if end_ms < start_ms:
            raise OptionError(option, f"{end_ms} is before the start, {start_ms}")
        case (SpecificOffsets(starts), SpecificOffsets(ends)) | (
            TimestampsByPartition(starts),
            TimestampsByPartition(ends),
        ):
            if differing := starts.keys() ^ ends.keys():
                raise OptionError(option, f"start and end name different partitions: {listed(differing)}")
            for partition, start in sorted(starts.items()):
                if 0 <= ends[partition] < start:
                    raise OptionError(option, f"{partition}: {ends[partition]} is before the start, {start}")


def _check_triggers(given: GivenOptions) -> None:
    least, most = given.read(table.MIN_OFFSETS_PER_TRIGGER), given.read(table.MAX_OFFSETS_PER_TRIGGER)
    if least is not None and most is not None and least > most:
        raise given.error(
            table.MIN_OFFSETS_PER_TRIGGER, f"{least} is more than {table.MAX_OFFSETS_PER_TRIGGER.name}, {most}"
        )


def _transport(given: GivenOptions) -> TransportKind:
    """Return the transport; without a broker to ask there must be files."""
    transport = given.read_required(table.TRANSPORT)
    has_path = table.PATH in given or table.PATHS in given
    if transport is TransportKind.AUTO:
        transport = TransportKind.FILES if has_path else TransportKind.WIRE
    if BOOTSTRAP_SERVERS in given:
        if transport is TransportKind.WIRE and has_path:
            log.warning("path is not used: transport is wire")
        return transport
    if transport is TransportKind.WIRE or not has_path:
        raise OptionError(
            BOOTSTRAP_SERVERS.name, "is needed: the address of a broker, host:port; only files at a 'path' need none"
        )
    return transport


def _admin_urls(given: GivenOptions) -> tuple[str, ...]:
    urls = given.read_required(table.ADMIN_URL)
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise given.error(table.ADMIN_URL, f"{url!r} is no address of a web page; one begins with http://")
    if urls and BOOTSTRAP_SERVERS not in given:
        raise given.error(table.ADMIN_URL, f"goes with a broker that runs; give {BOOTSTRAP_SERVERS.name}, too")
    return urls


def _columns(given: GivenOptions) -> tuple[str, ...]:
    names = given.read(table.COLUMNS)
    if names is not None:
        return check_columns(names, given.spelling(table.COLUMNS.name))
    return default_columns(given.read_required(table.INCLUDE_HEADERS))
