"""What reading a log again costs: the scrubber, beside the broker's clients, and ``trio-broker fsck``, offline.

In MiB per CPU second, by the size of the batches, of records of 100 B. The scrubber looks at batches, fsck also at
every record in them. The floor is the same bytes read and their CRC computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.figures import Repeats
from bench.outcome import Options, Outcome
from bench.partitions import BATCH_BYTES, read_and_check, write_log
from bench.subject import scratch
from bench.wire import MIB
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.partition_check import PartitionBounds, check_partition
from trio_broker.storage.segment_scrub import SegmentScrub

CHECKED_MIB = 32


def log_checks(options: Options) -> Outcome:
    """Rates of the scrubber and of fsck."""
    outcome = Outcome("log-checks")
    table = outcome.table(
        f"Reading a log again, medians of {options.repeats}: MiB per CPU second",
        *("bytes a batch", "scrubber", "fsck", "read and CRC", "scrubber ÷ floor", "fsck ÷ floor"),
    )
    for batch_bytes in BATCH_BYTES:
        scrubbed, checked, floor = [], [], []
        for _ in range(options.repeats):
            with scratch(options.directory) as parent:
                path = write_log(parent, batch_bytes, max(1, options.volume(CHECKED_MIB * MIB) // batch_bytes))
                floor.append(rate(path, partial(read_and_check, [path])))
                scrubbed.append(rate(path, partial(scrub, path)))
                checked.append(rate(path, partial(check, path.parent)))
        rates = [Repeats(each).median for each in (scrubbed, checked, floor)]
        table.add(batch_bytes, *rates, rates[0] / rates[2], rates[1] / rates[2])
        outcome.measures[f"log-checks-scrubber-{batch_bytes}"] = rates[0]
        outcome.measures[f"log-checks-fsck-{batch_bytes}"] = rates[1]
    return outcome


def rate(path: Path, work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return path.stat().st_size / MIB / (time.process_time() - began)


def scrub(path: Path) -> None:
    """Read a segment as the scrubber does."""
    file = LogFile(RealDisk(), path, read_only=True)
    steps = SegmentScrub(file, base_offset=0, end_offset=2**31 - 1, size=path.stat().st_size)
    for _ in steps.steps():
        pass
    assert steps.problem is None, steps.problem


def check(directory: Path) -> None:
    """Check a partition as fsck does after a kill."""
    bounds = PartitionBounds(was_clean=False, may_have_gaps=False)
    report = check_partition(RealDisk(), directory, TopicPartition("recovered", 0), bounds)
    assert not report.findings, report.findings
