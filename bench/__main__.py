"""``python -m bench NAME…``: measure, print tables, save JSON, judge by the goals. ``all`` measures everything."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import (
    acls,
    admin_load,
    admin_pages,
    bulk,
    compaction,
    disk,
    failover,
    greedy_client,
    groups,
    hostile_clients,
    kafka,
    latency,
    log_checks,
    loop_hold,
    metadata_changes,
    node,
    paced_producer,
    partitions,
    peers,
    read_committed,
    replication,
    small,
    spark,
    spark_decoder,
    spark_empty_runs,
    spark_first_scan,
    spark_streams,
    storm,
    tls,
    transactions,
    versions,
)
from bench.figures import rendered
from bench.machine import description
from bench.outcome import Options, Outcome, save, scoreboard
from bench.wire import BenchError
from trio_broker.testing.process import BrokerDidNotStart

BENCHMARKS: Mapping[str, Callable[[Options], Outcome]] = {
    "start": node.start,
    "peers": peers.peers,
    "kafka": kafka.kafka,
    "kafka-bulk": kafka.kafka_bulk,
    "kafka-compressed": kafka.kafka_compressed,
    "kafka-paced": paced_producer.kafka_paced,
    "transactions": transactions.transactions,
    "read-committed": read_committed.read_committed,
    "transactions-start": transactions.transactions_start,
    "replication": replication.replication,
    "failover": failover.failover,
    "versions": versions.versions,
    "partitions": partitions.partitions,
    "memory": node.memory,
    "storm": storm.storm,
    "idle": node.idle,
    "bulk-produce": bulk.produce,
    "bulk-fetch": bulk.fetch,
    "produce": small.produce,
    "latency": latency.latency,
    "fsync": disk.fsync,
    "fsync-cost": disk.fsync_cost,
    "io-threads": disk.io_threads,
    "network-threads": disk.network_threads,
    "commits": groups.commits,
    "rebalances": groups.rebalances,
    "group-memory": groups.group_memory,
    "reload": groups.reload,
    "compaction": compaction.compaction,
    "hostile-clients": hostile_clients.hostile_clients,
    "log-checks": log_checks.log_checks,
    "loop-hold": loop_hold.loop_hold,
    "acls": acls.acls,
    "tls-bulk": tls.tls_bulk,
    "tls-produce": tls.tls_produce,
    "tls-handshakes": tls.tls_handshakes,
    "greedy-client": greedy_client.greedy_client,
    "metadata-changes": metadata_changes.metadata_changes,
    "admin-pages": admin_pages.pages,
    "admin-cost": admin_load.cost,
    "admin-search": admin_load.search,
    "admin-metering": admin_load.metering,
    "spark-decoder": spark_decoder.spark_decoder,
    "spark-scans": spark.scans,
    "spark-exports": spark.exports,
    "spark-first-scan": spark_first_scan.first_scan,
    "spark-micro-batches": spark_streams.micro_batches,
    "spark-streams": spark_streams.streams,
    "spark-empty-runs": spark_empty_runs.empty_runs,
    "spark-exactly-once": spark_streams.exactly_once,
}

TOGETHER: Mapping[str, Sequence[str]] = {
    "all": tuple(BENCHMARKS),
    "security": ("tls-bulk", "tls-produce", "tls-handshakes", "acls", "greedy-client", "versions"),
}
"""Names of several."""


def options_of(arguments: Sequence[str] | None) -> tuple[list[str], Options]:
    """Read the command line: the names of the benchmarks to run, and how."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    choices = [*BENCHMARKS, *TOGETHER]
    parser.add_argument("names", nargs="+", choices=choices, metavar="NAME", help=", ".join(choices))
    parser.add_argument("--repeats", type=int, default=5, help="how often each thing is measured (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the volume of every measurement (1)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where data directories are made; must be on a disk, not in memory",
    )
    parser.add_argument("--before", type=Path, help="another checkout, which versions compares with this one")
    parsed = parser.parse_args(arguments)
    names = dict.fromkeys(each for name in parsed.names for each in TOGETHER.get(name, (name,)))
    return list(names), Options(parsed.directory, parsed.repeats, parsed.scale, parsed.before)


def show(outcome: Outcome) -> None:
    """Print the tables and remarks of one benchmark."""
    for table in outcome.tables:
        print(rendered(table), end="\n\n", flush=True)
    for remark in outcome.remarks:
        print(remark, end="\n\n", flush=True)


def measured(name: str, options: Options) -> Outcome | None:
    """Run one benchmark; None, with the reason printed, when the broker failed it: others are still worth having."""
    try:
        return BENCHMARKS[name](options)
    except (BenchError, BrokerDidNotStart, OSError):
        print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that were asked for, one after the other."""
    names, options = options_of(arguments)
    # Images of containers often forbid to write bytecode. Each process that a benchmark starts would compile modules
    # again that an installed package has compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    facts = {**description(options.directory), "repeats": options.repeats, "scale": options.scale}
    if facts["file_system"] in ("tmpfs", "ramfs"):
        print(f"{options.directory} is in memory: what is about the disk means nothing", file=sys.stderr)
    print(", ".join(f"{key} {value}" for key, value in facts.items()), end="\n\n")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    outcomes = []
    for name in names:
        began = time.perf_counter()
        if (outcome := measured(name, options)) is not None:
            outcomes.append(outcome)
            show(outcome)
        print(f"({name} took {time.perf_counter() - began:.0f} s)", end="\n\n", flush=True)
    measures = {key: value for outcome in outcomes for key, value in outcome.measures.items()}
    if (goals := scoreboard(measures)).rows:
        print(rendered(goals), end="\n\n")
    if outcomes:
        print(f"saved: {save(outcomes, facts, stamp)}")
    if len(outcomes) < len(names):
        sys.exit(1)


if __name__ == "__main__":
    main()
