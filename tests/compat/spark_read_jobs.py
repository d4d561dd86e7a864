"""Jobs that read batches, for both sources: options in every form, and what is wrong with them.

Each is a ``ReadJob`` about the topics of ``spark_topics``. Where the two sources differ on purpose, ``Difference`` says
how and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import attrs

from tests.compat.spark_topics import (
    ALL_CODECS,
    APPEND_TIME,
    COMPACTED,
    EMPTY,
    SHORTENED,
    SHORTENED_LENGTH,
    START_MS,
    STEP_MS,
)


@attrs.frozen
class ReadJob:
    """A job that either source runs. ``names`` is what our error names, where the job is refused: an expression."""

    title: str
    options: Mapping[str, str]
    names: str = ""

    @property
    def sets_tasks(self) -> bool:
        """Whether it says how many tasks there are to be."""
        return not {"minpartitions", "maxrecordsperpartition"}.isdisjoint(name.lower() for name in self.options)

    def __str__(self) -> str:
        return self.title.replace(" ", "-")


def job(title: str, names: str = "", /, **options: str) -> ReadJob:
    """Return a job; ``__`` in the name of an option is a dot."""
    return ReadJob(title, {name.replace("__", "."): value for name, value in options.items()}, names)


def by_partition(**offsets: dict[int, int]) -> str:
    """Return offsets or times as JSON; ``_`` in the name of a topic is a hyphen."""
    return json.dumps({topic.replace("_", "-"): numbers for topic, numbers in offsets.items()})


def at(number: int) -> int:
    """Return the time of record ``number`` of a partition."""
    return START_MS + STEP_MS * number


AFTER_ALL: Final = at(10**6)

NOT_LONG_MS: Final = "1000"
"""Spark's own source waits that long for records that will never be, however clear that is."""

ANSWERED: Final = (
    job("all codecs with headers", subscribe=ALL_CODECS, includeHeaders="true"),
    job(
        "several topics, some of them empty",
        subscribe=f"{APPEND_TIME}, {SHORTENED},{EMPTY}",
        includeHeaders="TRUE",
    ),
    job("a pattern", subscribePattern="(all|append)-[a-z]+", includeHeaders="true"),
    job("a pattern for a part of the name", subscribePattern="d-co"),
    job("a pattern for whole names", subscribePattern="^(short|append-time)$"),
    job("a pattern that nothing matches", subscribePattern="^short$"),
    job("assigned partitions", assign='{"all-codecs": [0, 2], "shortened": [1]}'),
    job("a topic named twice", subscribe=f"{APPEND_TIME},{APPEND_TIME}"),
    job("a compacted topic", subscribe=COMPACTED),
    job("a start in a gap", subscribe=COMPACTED, startingOffsets='{"compacted": {"0": 3}}'),
    job("a topic that has lost its beginning", subscribe=SHORTENED),
    job("an empty topic", subscribe=EMPTY),
    job(
        "offsets at both ends",
        subscribe=ALL_CODECS,
        startingOffsets=by_partition(all_codecs={0: 3, 1: 19, 2: 0}),
        endingOffsets=by_partition(all_codecs={0: 33, 1: 20, 2: 1}),
    ),
    job(
        "sentinels",
        subscribe=SHORTENED,
        startingOffsets=by_partition(shortened={0: -2, 1: 4}),
        endingOffsets=by_partition(shortened={0: -1, 1: -1}),
    ),
    job(
        "nothing between the ends",
        assign='{"all-codecs": [1]}',
        startingOffsets=by_partition(all_codecs={1: 7}),
        endingOffsets=by_partition(all_codecs={1: 7}),
    ),
    job("offsets of assigned partitions", assign='{"all-codecs": [1]}', startingOffsets='{"all-codecs":{"1":5}}'),
    job("a time to start", subscribe=ALL_CODECS, startingTimestamp=str(at(5))),
    job("a time between two records", subscribe=ALL_CODECS, startingTimestamp=str(at(5) + 1)),
    job("a time to end", subscribe=ALL_CODECS, endingTimestamp=str(at(15))),
    job(
        "times of partitions",
        subscribe=ALL_CODECS,
        startingOffsetsByTimestamp=by_partition(all_codecs={0: at(9), 1: at(2), 2: 0}),
        endingOffsetsByTimestamp=by_partition(all_codecs={0: at(11), 1: at(10**6), 2: at(3)}),
    ),
    job(
        "a time without records, at the latest offset",
        subscribe=ALL_CODECS,
        startingTimestamp=str(at(15)),
        startingOffsetsByTimestampStrategy="latest",
    ),
    job(
        "times without records, at the latest offset",
        subscribe=ALL_CODECS,
        startingOffsetsByTimestamp=by_partition(all_codecs={0: at(30), 1: at(10), 2: at(10)}),
        startingOffsetsByTimestampStrategy="LATEST",
    ),
    job("an end after all records", subscribe=ALL_CODECS, endingTimestamp=str(AFTER_ALL)),
    job("times of a log that has lost its beginning", subscribe=SHORTENED, startingTimestamp=str(at(2))),
    job(
        "a time is stronger than times and offsets",
        subscribe=ALL_CODECS,
        startingTimestamp=str(at(4)),
        startingOffsetsByTimestamp=by_partition(all_codecs={0: at(1), 1: at(1), 2: at(1)}),
        startingOffsets="earliest",
        endingTimestamp=str(at(8)),
        endingOffsets="latest",
    ),
    job(
        "times are stronger than offsets",
        subscribe=ALL_CODECS,
        startingOffsetsByTimestamp=by_partition(all_codecs={0: at(1), 1: at(1), 2: at(1)}),
        startingOffsets=by_partition(all_codecs={0: 8, 1: 8, 2: 8}),
    ),
    job("more tasks than partitions", subscribe=ALL_CODECS, minPartitions="7"),
    job("fewer tasks than partitions", subscribe=ALL_CODECS, minPartitions="2"),
    job(
        "more tasks than offsets",
        subscribe=ALL_CODECS,
        minPartitions="200",
        endingOffsets=by_partition(all_codecs={0: 5, 1: 2, 2: 1}),
    ),
    job("few records and many tasks", subscribe=ALL_CODECS, maxRecordsPerPartition="15", minPartitions="11"),
    job("options in other letters", SUBSCRIBE=ALL_CODECS, STARTINGOFFSETS="Earliest", minpartitions="4"),
    job("options of streams, which do nothing", subscribe=EMPTY, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2"),
    job("a group of one's own", subscribe=APPEND_TIME, kafka__group__id="mine", groupIdPrefix="theirs"),
    job(
        "settings of the consumer",
        subscribe=ALL_CODECS,
        kafka__max__poll__records="3",
        kafka__fetch__max__bytes="500",
        kafka__max__partition__fetch__bytes="200",
    ),
    job(
        "lost records, taken as they are",
        subscribe=SHORTENED,
        failOnDataLoss="false",
        startingOffsets=by_partition(shortened={0: 3, 1: 0}),
    ),
    job(
        "an end that never was, taken as it is",
        subscribe=SHORTENED,
        failOnDataLoss="false",
        startingOffsets=by_partition(shortened={0: 15, 1: 0}),
        endingOffsets=by_partition(shortened={0: SHORTENED_LENGTH, 1: 33}),
        kafkaConsumer__pollTimeoutMs=NOT_LONG_MS,
    ),
    job(
        "all of it lost, taken as it is",
        assign='{"shortened": [0]}',
        failOnDataLoss="false",
        startingOffsets=by_partition(shortened={0: 1}),
        endingOffsets=by_partition(shortened={0: 7}),
    ),
)

REFUSED: Final = (
    job(
        "lost records",
        "shortened-0 at offset 3",
        subscribe=SHORTENED,
        startingOffsets=by_partition(shortened={0: 3, 1: 0}),
    ),
    job(
        "all of it lost",
        "shortened-0 at offset 1",
        subscribe=SHORTENED,
        startingOffsets=by_partition(shortened={0: 1, 1: 0}),
        endingOffsets=by_partition(shortened={0: 7, 1: 20}),
    ),
    job(
        "an end that never was",
        "shortened-1 at offset 20",
        subscribe=SHORTENED,
        endingOffsets=by_partition(shortened={0: 20, 1: 33}),
        kafkaConsumer__pollTimeoutMs=NOT_LONG_MS,
    ),
    job(
        "a start that never was",
        "shortened-1 at offset 40",
        subscribe=SHORTENED,
        startingOffsets=by_partition(shortened={0: 12, 1: 40}),
    ),
    job("nothing to read", "subscribe"),
    job("two ways to say what", "subscribe", subscribe=EMPTY, assign='{"empty": [0]}'),
    job("no topic", "subscribe", subscribe=""),
    job("only commas", "subscribe", subscribe=" , "),
    job("an empty pattern", "subscribePattern", subscribePattern=" "),
    job("a pattern that is none", "subscribePattern", subscribePattern="(a"),
    job("partitions without JSON", "assign", assign="empty-0"),
    job("partitions of the wrong kind", "assign", assign='{"empty": {"0": 1}}'),
    job("a topic that is not there", "no-such-topic", subscribe="no-such-topic"),
    job("no brokers", "kafka.bootstrap.servers", subscribe=EMPTY, kafka__bootstrap__servers=""),
    job("to start at the end", "startingOffsets", subscribe=EMPTY, startingOffsets="latest"),
    job(
        "to start at the end of a partition",
        "startingOffsets.*empty-1",
        subscribe=EMPTY,
        startingOffsets=by_partition(empty={0: 0, 1: -1}),
    ),
    job("to end at the beginning", "endingOffsets", subscribe=EMPTY, endingOffsets="earliest"),
    job(
        "to end at the beginning of a partition",
        "endingOffsets.*empty-1",
        subscribe=EMPTY,
        endingOffsets=by_partition(empty={0: 0, 1: -2}),
    ),
    job("offsets that are none", "startingOffsets", subscribe=EMPTY, startingOffsets="yesterday"),
    job(
        "offsets in quotes",
        "startingOffsets.*append-time-0",
        subscribe=APPEND_TIME,
        startingOffsets='{"append-time": {"0": "3"}}',
    ),
    job(
        "offsets of one partition only",
        "startingOffsets.*empty-1",
        subscribe=EMPTY,
        startingOffsets=by_partition(empty={0: 0}),
    ),
    job(
        "offsets of a partition too many",
        "startingOffsets.*empty-2",
        subscribe=EMPTY,
        startingOffsets=by_partition(empty={0: 0, 1: 0, 2: 0}),
    ),
    job(
        "ends of another topic",
        "endingOffsets.*append-time-0",
        subscribe=EMPTY,
        endingOffsets=by_partition(empty={0: 0, 1: 0}, append_time={0: 0}),
    ),
    job(
        "different partitions at both ends",
        "endingOffsets.*empty-1",
        subscribe=EMPTY,
        startingOffsets=by_partition(empty={0: 0, 1: 0}),
        endingOffsets=by_partition(empty={0: 0}),
    ),
    job(
        "an end before its start",
        "endingOffsets.*all-codecs-1.*3.*5",
        assign='{"all-codecs": [1]}',
        startingOffsets=by_partition(all_codecs={1: 5}),
        endingOffsets=by_partition(all_codecs={1: 3}),
    ),
    job(
        "times of one partition only",
        "startingOffsetsByTimestamp.*empty-1",
        subscribe=EMPTY,
        startingOffsetsByTimestamp=by_partition(empty={0: 0}),
    ),
    job(
        "times out of order",
        "endingOffsetsByTimestamp.*append-time-0",
        subscribe=APPEND_TIME,
        startingOffsetsByTimestamp=by_partition(append_time={0: 9}),
        endingOffsetsByTimestamp=by_partition(append_time={0: 5}),
    ),
    job("a time in words", "startingTimestamp", subscribe=EMPTY, startingTimestamp="noon"),
    job(
        "a time that nobody reached",
        "startingTimestamp.*all-codecs-2",
        subscribe=ALL_CODECS,
        startingTimestamp=str(at(15)),
    ),
    job(
        "times that nobody reached",
        "startingOffsetsByTimestamp.*all-codecs-2",
        subscribe=ALL_CODECS,
        startingOffsetsByTimestamp=by_partition(all_codecs={0: 0, 1: 0, 2: at(15)}),
    ),
    job(
        "a strategy that nobody knows",
        "startingOffsetsByTimestampStrategy",
        subscribe=EMPTY,
        startingOffsetsByTimestampStrategy="perhaps",
        startingTimestamp="1",
    ),
    job("no tasks", "minPartitions", subscribe=EMPTY, minPartitions="0"),
    job("tasks in words", "minPartitions", subscribe=EMPTY, minPartitions="many"),
    job("tasks of no records", "maxRecordsPerPartition", subscribe=EMPTY, maxRecordsPerPartition="0"),
    job("neither true nor false", "includeHeaders", subscribe=EMPTY, includeHeaders="perhaps"),
    job("loss that may perhaps be", "failOnDataLoss", subscribe=EMPTY, failOnDataLoss="perhaps"),
    job("a reset", "kafka.auto.offset.reset", subscribe=EMPTY, kafka__auto__offset__reset="latest"),
    job("a deserializer of keys", "kafka.key.deserializer", subscribe=EMPTY, kafka__key__deserializer="a.B"),
    job("a deserializer of values", "kafka.value.deserializer", subscribe=EMPTY, kafka__value__deserializer="a.B"),
    job("commits", "kafka.enable.auto.commit", subscribe=EMPTY, kafka__enable__auto__commit="true"),
    job("interceptors", "kafka.interceptor.classes", subscribe=EMPTY, kafka__interceptor__classes="a.B"),
    job(
        "an isolation that nobody knows",
        "kafka.isolation.level",
        subscribe=APPEND_TIME,
        kafka__isolation__level="serializable",
    ),
)


@attrs.frozen
class Difference:
    """A job that the two sources do not answer alike: what comes of it there and here, and why it is so."""

    job: ReadJob
    kafka: str
    ours: str
    reason: str

    def __str__(self) -> str:
        return str(self.job)


KNOWN_DIFFERENCES: Final = (
    Difference(
        job("tasks of a few records", subscribe=ALL_CODECS, maxRecordsPerPartition="9"),
        "70 rows in 3 tasks",
        "70 rows in 10 tasks",
        "there a batch heeds maxRecordsPerPartition only if minPartitions asks for more tasks than partitions, too",
    ),
    Difference(
        job("empty partitions", subscribe=EMPTY),
        "0 rows in 2 tasks",
        "0 rows in 0 tasks",
        "a task with nothing to read is not worth starting",
    ),
    Difference(
        job("a misspelt option", "did you mean 'startingOffsets'", subscribe=ALL_CODECS, startingOfsets="latest"),
        "70 rows in 3 tasks",
        "fails",
        "it is most likely misspelt, and would be ignored",
    ),
    Difference(
        job(
            "a misspelt config of Kafka",
            "did you mean 'kafka.fetch.min.bytes'",
            **{"subscribe": ALL_CODECS, "kafka.fetch.minbytes": "1"},
        ),
        "70 rows in 3 tasks",
        "fails",
        "the same",
    ),
    Difference(
        job(
            "a fraction of an offset",
            "startingOffsets.*append-time-0.*1.5",
            subscribe=APPEND_TIME,
            startingOffsets='{"append-time": {"0": 1.5}}',
        ),
        "14 rows in 1 tasks",
        "fails",
        "there is no such offset",
    ),
    Difference(
        job(
            "a partition named twice",
            "startingOffsets.*'0'",
            subscribe=APPEND_TIME,
            startingOffsets='{"append-time": {"0": 3, "0": 5}}',
        ),
        "10 rows in 1 tasks",
        "fails",
        "one of the two is wrong, and nothing would say which one was taken",
    ),
    Difference(
        job(
            "an end in time before its start",
            "endingTimestamp",
            subscribe=APPEND_TIME,
            startingTimestamp="2000",
            endingTimestamp="1000",
        ),
        "0 rows in 1 tasks",
        "fails",
        "the same as for offsets",
    ),
)
"""Beside these, partitions with nothing to read have a task of their own there, and none here."""
