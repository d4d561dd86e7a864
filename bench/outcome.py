"""What a benchmark hands back, the goals it is held against, and how both are kept and shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from bench.figures import Better, Goal, Table, shown

RESULTS_DIRECTORY = Path(__file__).parent / "results"

MIB_LIMIT = 64

GOALS: Mapping[str, Goal] = {
    "bulk-produce": Goal(
        "bulk produce, 1 MiB batches, page cache: CPU per MiB ÷ bare recv+crc+write", Better.LESS, 1.5
    ),
    "bulk-fetch": Goal("bulk fetch, cached: throughput ÷ bare sendfile", Better.MORE, 0.8),
    "produce": Goal("one-record produce, 16 connections: CPU per request ÷ bare Trio pool echo", Better.LESS, 4),
    **{
        f"kafka-{load}-{connections}-{what}": Goal(
            f"{title}, {connections} connections: {text} ÷ Kafka's", better, goal
        )
        for load, title, connections, rate, cpu in (
            ("produce", "one-record produce", 64, 0.45, 1.6),
            ("produce", "one-record produce", 16, 0.6, 1.4),
            ("produce", "one-record produce", 1, 1.0, 1.1),
            ("fetch", "fetch of one small batch", 64, 0.45, 1.8),
            ("fetch", "fetch of one small batch", 16, 0.5, 1.6),
            ("fetch", "fetch of one small batch", 1, 1.0, 1.1),
            ("api-versions", "ApiVersions", 64, 1.0, 0.5),
        )
        for what, text, better, goal in (
            ("cpu", "CPU per request", Better.LESS, cpu),
            ("rate", "requests/s", Better.MORE, rate),
        )
    },
    "kafka-bulk-rate": Goal(
        "bulk in frames of 1 MiB, one connection, the slower of produce and fetch: rate ÷ Kafka's", Better.MORE, 1.04
    ),
    "kafka-bulk-cpu": Goal("the same, the dearer one: CPU ÷ Kafka's", Better.LESS, 0.74),
    "kafka-bulk-librdkafka-rate": Goal(
        "bulk by librdkafka, 100 B and 1 KB, the slowest of produce and consume: rate ÷ Kafka's", Better.MORE, 1.04
    ),
    "kafka-bulk-librdkafka-cpu": Goal("the same, the dearest one: CPU ÷ Kafka's", Better.LESS, 0.74),
    "kafka-bulk-librdkafka-produce-1000-cpu": Goal("bulk produce by librdkafka, 1 KB: CPU ÷ Kafka's", Better.LESS, 0.6),
    **{
        f"kafka-compressed-{codec}-{size}-cpu": Goal(
            f"bulk produce by librdkafka, {codec}, {text}: CPU ÷ Kafka's", Better.LESS, 1
        )
        for codec in ("zstd", "lz4")
        for size, text in ((1000, "1 KB"), (100, "100 B"))
    },
    "kafka-paced-cpu": Goal(
        "20,000 records/s of 1 KiB by a Java producer, acks=all, page cache: CPU a record ÷ Kafka's", Better.LESS, 1.3
    ),
    "kafka-paced-rate": Goal("the same: the rate that was kept ÷ 20,000", Better.MORE, 0.99),
    "kafka-paced-fsync-rate": Goal("the same; fsync", Better.MORE, 0.99),
    "kafka-paced-memory": Goal("the same, page cache: RSS under load", Better.LESS, 80, "MiB"),
    "kafka-paced-fsync-memory": Goal("the same; fsync", Better.LESS, 80, "MiB"),
    **{
        f"latency-{fraction}": Goal(
            f"a record of 100 B until a waiting consumer has it, page cache: {text} ÷ Kafka's", Better.LESS, goal
        )
        for fraction, text, goal in (("p50", "p50", 1.3), ("p99", "p99", 1), ("p999", "p99.9", 1))
    },
    **{
        f"versions-{connections}-1": Goal(
            f"one-record produce, {connections} connections: CPU ÷ the version before", Better.LESS, 1.02
        )
        for connections in (16, 64)
    },
    **{
        f"versions-{connections}-16": Goal(
            f"the same, 16 sent at once over each of {connections} connections", Better.LESS, 1.02
        )
        for connections in (4, 16)
    },
    "transactions-16-rate": Goal(
        "transactions of ten records, 16 producers: transactions/s ÷ Kafka's", Better.MORE, 0.5
    ),
    "transactions-1-rate": Goal("the same; one producer", Better.MORE, 0.5),
    "transactions-16-cpu": Goal("the same, 16 producers: CPU per transaction ÷ Kafka's", Better.LESS, 2),
    "transactions-1-cpu": Goal("the same; one producer", Better.LESS, 2),
    "read-committed-1024-rate": Goal(
        "fetch of 1 MiB, a tenth of transactions aborted: read_committed ÷ all, rate", Better.MORE, 0.95
    ),
    "read-committed-16-rate": Goal("the same; fetches of 16 KiB", Better.MORE, 0.95),
    "transactions-start": Goal("start until 10,000 transactional ids are there again", Better.LESS, 3, "s"),
    "fsync-cost-64-16": Goal(
        "fsync, 64 producers, 16 partitions: CPU per acknowledgement ÷ page cache", Better.LESS, 1.6
    ),
    "fsync-cost-64-1": Goal("the same; one partition", Better.LESS, 1.6),
    "fsync-cost-1-1": Goal("the same; one producer", Better.LESS, 2.5),
    "fsync-as-it-is": Goal("fsync acks=all, 64 producers: acks/s × one fdatasync; the disk as it is", Better.MORE, 20),
    "fsync-2ms": Goal("the same; each sync 2 ms longer", Better.MORE, 20),
    "fsync-5ms": Goal("the same; each sync 5 ms longer", Better.MORE, 20),
    "io-threads-as-it-is": Goal(
        "fsync-bound load, 16 partitions: io threads 4 ÷ 1; the disk as it is", Better.MORE, 2.5
    ),
    "io-threads-2ms": Goal("the same; each sync 2 ms longer", Better.MORE, 2.5),
    "network-threads-as-it-is": Goal(
        "cold fetch, 8 consumers: network threads 4 ÷ 1; the disk as it is", Better.MORE, 1.5
    ),
    "network-threads-2ms": Goal("the same; each read 2 ms longer", Better.MORE, 1.5),
    "start": Goal("process start to first Metadata answer", Better.LESS, 0.8, "s"),
    "start-in-process-first": Goal("the same inside a running Python, the first broker", Better.LESS, 50, "ms"),
    "start-in-process": Goal("the same inside a running Python, each one after it", Better.LESS, 50, "ms"),
    "partitions-create": Goal("create 1,000 partitions, 100 topics of ten", Better.LESS, 3, "s"),
    "partitions-create-one-topic": Goal("create one topic of 1,000 partitions", Better.LESS, 3, "s"),
    "partitions-create-topics-of-one": Goal("create 1,000 topics of one partition in one request", Better.LESS, 3, "s"),
    "partitions-stop": Goal("stop an idle broker with 5,000 partitions", Better.LESS, 2, "s"),
    "partitions-start": Goal("clean start with 5,000 partitions", Better.LESS, 4, "s"),
    "partitions-recovery-16384": Goal(
        "recovery after a kill, batches of 16 KiB: MiB per CPU second", Better.MORE, 150, "MiB/s"
    ),
    "memory-idle": Goal("idle RSS", Better.LESS, MIB_LIMIT, "MiB"),
    "storm": Goal("RSS after bombs, large batches and floods ÷ before", Better.LESS, 1.3),
    "idle": Goal("idle broker, 1,000 partitions: CPU", Better.LESS, 1, "% of a core"),
    "commits": Goal("OffsetCommit of a member: CPU per request ÷ bare Trio pool echo", Better.LESS, 5),
    "rebalance-page-cache": Goal("rebalance of 50 members, after their heartbeats", Better.LESS, 200, "ms"),
    "rebalance-fsync": Goal("the same; fsync", Better.LESS, 200, "ms"),
    "group-memory": Goal("coordinator memory per member", Better.LESS, 10, "KB"),
    "reload": Goal("start until a million commits are there again", Better.LESS, 10, "s"),
    "replication-rate": Goal(
        "acks=all, three replicas, two in sync, 1 KB by librdkafka: rate ÷ Kafka's", Better.MORE, 0.7
    ),
    "replication-cpu": Goal("the same: CPU of all brokers and etcd ÷ Kafka's", Better.LESS, 1.3),
    "replication-fsync": Goal("the same: rate with fsync ÷ page cache", Better.MORE, 0.5),
    "replication-follower": Goal("the same, one partition: CPU of a follower ÷ its leader", Better.LESS, 0.5),
    "failover-killed": Goal("leader killed, 1,000 partitions: next record acknowledged", Better.LESS, 4, "s"),
    "failover-stopped": Goal("leader stopped: longest gap of a partition", Better.LESS, 200, "ms"),
    "failover-controller": Goal("controller killed, 10,000 partitions: next topic created", Better.LESS, 5, "s"),
    "failover-seen": Goal("a new topic known to every broker", Better.LESS, 100, "ms"),
    "acls-first": Goal(
        "check of a right, 10,000 access control entries, the first of its kind", Better.LESS, 100, "µs"
    ),
    "acls-kept": Goal("the same, kept", Better.LESS, 5, "µs"),
    **{
        f"tls-bulk-{load}": Goal(
            f"bulk {load} by librdkafka, 1 KB: CPU with TLS ÷ without, over that of Kafka", Better.LESS, 1
        )
        for load in ("produce", "consume")
    },
    **{
        f"tls-produce-{connections}": Goal(
            f"one-record produce, {connections} connections: CPU with TLS ÷ without", Better.LESS, 1.35
        )
        for connections in (64, 16, 1)
    },
    "tls-handshakes-ec": Goal("1,000 whole handshakes, key P-256: CPU", Better.LESS, 1.5, "s"),
    "tls-handshakes-rsa": Goal("the same, RSA 2048", Better.LESS, 1.5, "s"),
    "tls-handshakes-p99": Goal("p99 of a good client beside handshakes ÷ alone", Better.LESS, 2),
    "tls-handshakes-p99-elsewhere": Goal("the same ÷ while a second broker has them", Better.LESS, 2),
    "greedy-client": Goal(
        "p99 of a producer beside a client that sends 10 times its quota ÷ without it", Better.LESS, 1.5
    ),
    "loop-hold": Goal("longest hold of the event loop by one request, each API at its largest", Better.LESS, 20, "ms"),
    "metadata-changes-10000": Goal(
        "one changed ISR in a topic of 10,000 partitions: CPU of the event loop", Better.LESS, 0.3, "ms"
    ),
    "hostile-clients": Goal("p99 of a good client beside the worst kind of hostile ones ÷ alone", Better.LESS, 2),
    "hostile-clients-elsewhere": Goal("the same ÷ while they attack a second broker", Better.LESS, 2),
    "hostile-clients-p99": Goal("the same, absolute", Better.LESS, 50, "ms"),
    "admin-pages": Goal("dearest page of 1,000 topics, 10,000 partitions, 1,000 groups: CPU", Better.LESS, 100, "ms"),
    "admin-pages-step": Goal("the same: longest step of the event loop in any page", Better.LESS, 20, "ms"),
    "admin-paint": Goal("the same: slowest first paint in Chromium", Better.LESS, 300, "ms"),
    "admin-cost": Goal("five open pages and a tail: produce throughput ÷ without", Better.MORE, 0.95),
    "admin-cost-cpu": Goal("the same: CPU per Produce ÷ without", Better.LESS, 1.05),
    "admin-search": Goal("p99 of Produce while a million records are searched ÷ quiet", Better.LESS, 2),
    "admin-metering": Goal("metering of a request: CPU over a call that does nothing", Better.LESS, 1, "µs"),
    "spark-decode-none": Goal("decoding for Spark, 100 B, 16 KiB batches, none", Better.MORE, 15, "M rows/s"),
    "spark-decode-lz4": Goal("the same; lz4", Better.MORE, 7, "M rows/s"),
    "spark-decode-zstd": Goal("the same; zstd as Java writes it", Better.MORE, 4, "M rows/s"),
    "spark-decode-plain": Goal("the same without numba; none, the worst batch size", Better.MORE, 2, "M rows/s"),
    "spark-decode-ratio": Goal("the same with numba ÷ aiokafka's parser in C", Better.MORE, 4),
    "spark-scan-small": Goal("Spark full scan, files ÷ Parquet with the same rows; 100 B", Better.MORE, 0.6),
    "spark-scan-large": Goal("the same; 1 KB", Better.MORE, 1.0),
    "spark-wire-small": Goal("Spark full scan, wire ÷ files; 100 B", Better.MORE, 0.8),
    "spark-wire-large": Goal("the same; 1 KB", Better.MORE, 0.8),
    "spark-peer-small": Goal("Spark full scan by wire, rows per CPU second ÷ spark-sql-kafka; 100 B", Better.MORE, 3.0),
    "spark-peer-large": Goal("the same; 1 KB", Better.MORE, 2.2),
    "spark-peer-small-wall": Goal("the same, rows per second; 100 B", Better.MORE, 2.5),
    "spark-peer-large-wall": Goal("the same; 1 KB", Better.MORE, 2.8),
    "spark-stream-small-100k-cpu": Goal(
        "Spark stream of micro-batches of 100 k rows, CPU of spark-sql-kafka ÷ ours; 100 B", Better.MORE, 1.8
    ),
    "spark-stream-large-100k-cpu": Goal("the same; 1 KB", Better.MORE, 1.3),
    "spark-stream-small-100k-wall": Goal("the same, time of a micro-batch; 100 B", Better.MORE, 1.8),
    "spark-stream-large-100k-wall": Goal("the same; 1 KB", Better.MORE, 1.3),
    "spark-first-scan": Goal(
        "first scan on a new executor, nothing compiled, 40,000 rows of 100 B", Better.LESS, 3, "s"
    ),
    "spark-empty-run-cpu": Goal("a stream's run with nothing new: CPU", Better.LESS, 0.4, "s"),
    "spark-empty-run-floor-ratio": Goal("the same ÷ a source in Python that does nothing", Better.LESS, 1.2),
    "spark-empty-run-cpu-ratio": Goal("the same ÷ spark-sql-kafka", Better.LESS, 2),
    "spark-empty-run-wall-ratio": Goal("the same, time", Better.LESS, 3),
    "spark-export-small": Goal("pipeline export ÷ df.write.parquet from the same source; 100 B", Better.MORE, 2.5),
    "spark-export-large": Goal("the same; 1 KB", Better.MORE, 1.4),
    "spark-micro-batch": Goal("micro-batch of 100 rows, from our source to our sink", Better.LESS, 0.4, "s"),
    "spark-micro-batch-python": Goal("the same: CPU of Python", Better.LESS, 0.08, "s"),
    "spark-exactly-once-10k": Goal("micro-batch of 10 k rows, exactly-once ÷ at-least-once", Better.LESS, 1.3),
    "spark-exactly-once-100k": Goal("the same; 100 k rows", Better.LESS, 1.15),
    "memory-connection": Goal("memory per idle connection at 10,000", Better.LESS, 20, "KB"),
}


@attrs.frozen
class Options:
    """What the command line sets. ``scale`` multiplies the volume of every measurement; 1 is meant for the table."""

    directory: Path
    repeats: int = 5
    scale: float = 1.0
    before: Path | None = None
    """Another checkout of the broker, to compare with."""

    def volume(self, count: int) -> int:
        return max(1, round(count * self.scale))


@attrs.define
class Outcome:
    """The tables of one benchmark, the values that goals are about, and remarks that belong beside them."""

    name: str
    tables: list[Table] = attrs.field(factory=list)
    measures: dict[str, float] = attrs.field(factory=dict)
    remarks: list[str] = attrs.field(factory=list)

    def table(self, title: str, *columns: str) -> Table:
        """Begin a table."""
        self.tables.append(Table(title, columns))
        return self.tables[-1]


def scoreboard(measures: Mapping[str, float]) -> Table:
    """The goals of those measures that were taken, and whether they were reached."""
    table = Table("Goals", ["measure", "goal", "measured", "verdict"])
    for key, goal in GOALS.items():
        if key in measures:
            value = measures[key]
            table.add(goal.measure, str(goal), f"{shown(value)} {goal.unit}".strip(), goal.verdict(value))
    return table


def save(outcomes: Iterable[Outcome], facts: Mapping[str, Any], stamp: str) -> Path:
    """Write the outcomes with full precision to a file named by ``stamp``; return its path."""
    RESULTS_DIRECTORY.mkdir(exist_ok=True)
    taken: Sequence[Outcome] = list(outcomes)
    path = RESULTS_DIRECTORY / f"{stamp}-{taken[0].name if len(taken) == 1 else 'all'}.json"
    path.write_text(json.dumps({"machine": dict(facts), "outcomes": [attrs.asdict(one) for one in taken]}, indent=1))
    return path
