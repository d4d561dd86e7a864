"""``trio-broker fsck``: verifies data directories without a broker, and mends what options name.

Exit codes: 0 nothing is damaged; 1 a directory could not be checked, or a broker has it open; 2 wrong options; 3 only
what can be made anew from the logs is damaged; 4 records, or files that say what nothing else says, are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from trio_broker.cli.failure import fail, print_error
from trio_broker.cli.output import print_json
from trio_broker.common.escaping import escape_control
from trio_broker.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from trio_broker.storage.directory_check import DirectoryFacts, PartitionTask
    from trio_broker.storage.findings import StorageFinding
    from trio_broker.storage.partition_check import PartitionReport

EXIT_DERIVED: Final = 3
EXIT_DAMAGED: Final = 4


@click.command("fsck")
@click.argument("data_directories", metavar="DATA_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--rebuild", is_flag=True, help="Make damaged indexes, snapshots and epoch files anew from the logs.")
@click.option(
    "--accept-loss", metavar="TOPIC-PARTITION", multiple=True,
    help="Take this damaged partition back into service without what is damaged; the damaged files are kept aside.",
)  # fmt: skip
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Partitions checked at a time; by default as many as processors.",
)
def fsck(
    data_directories: tuple[Path, ...],
    as_json: bool,
    rebuild: bool,
    accept_loss: tuple[str, ...],
    processes: int | None,
) -> None:
    """Verify every file of data directories that no broker has open. Nothing is changed without an option that says so.

    Give all of a broker's log.dirs: the metadata log in the first one tells of the topics in the others.
    """
    import os

    from trio_broker.runtime.real_disk import RealDisk
    from trio_broker.storage.directory_check import compare_identities, read_directory, read_topics

    disk = RealDisk()
    accepted = {_parse_partition(text) for text in accept_loss}
    try:
        with ExitStack() as locks:
            for directory in data_directories:
                _lock(locks, disk, directory, is_changed=rebuild or bool(accepted))
            topics = read_topics(disk, data_directories)
            directories = [read_directory(disk, directory, topics) for directory in data_directories]
            tasks = [task for each in directories for task in each.tasks]
            if unknown := accepted - {task.topic_partition for task in tasks}:
                fail(f"no directory holds {', '.join(sorted(map(str, unknown)))}")
            reports = list(_check_all(tasks, processes or os.cpu_count() or 1))
            mended = _mend(disk, directories, tasks, reports, rebuild, accepted)
            if mended.is_changed:
                # Reported as it is now.
                topics = read_topics(disk, data_directories)
                directories = [read_directory(disk, directory, topics) for directory in data_directories]
                tasks = [task for each in directories for task in each.tasks]
                reports = list(_check_all(tasks, processes or os.cpu_count() or 1))
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    findings = [*compare_identities(directories), *(found for each in directories for found in each.findings)]
    reports.sort(key=lambda report: report.directory)
    findings += [finding for report in reports for finding in report.findings]
    code = exit_code(findings)
    if as_json:
        print_json(_document(directories, reports, findings, mended.actions, code))
    else:
        for line in _text(directories, reports, findings, mended.actions):
            click.echo(escape_control(line))
    sys.exit(code)


def exit_code(findings: Sequence[StorageFinding]) -> int:
    """The exit code for what was found."""
    if not findings:
        return 0
    return EXIT_DERIVED if all(finding.kind.is_derived for finding in findings) else EXIT_DAMAGED


def _parse_partition(text: str) -> TopicPartition:
    from trio_broker.storage.file_names import parse_partition_directory

    partition = parse_partition_directory(text)
    if partition is None:
        raise click.BadParameter(
            f"{text!r} is not of the form topic-partition, such as orders-3", param_hint="--accept-loss"
        )
    return partition


def _lock(locks: ExitStack, disk: Any, directory: Path, *, is_changed: bool) -> None:
    from trio_broker.runtime.disk import LockHeld
    from trio_broker.storage.file_names import LOCK_FILE

    if not disk.is_directory(directory):
        fail(f"{directory} is no directory")
    path = directory / LOCK_FILE
    # A check alone makes no file: the directory may be a copy that cannot be written to.
    if not is_changed and not disk.exists(path):
        return
    try:
        locks.callback(disk.lock(path).release)
    except LockHeld as error:
        by = f" by process {error.holder}" if error.holder else ""
        fail(f"{directory} is in use: {path} is locked{by}; stop the broker first")


def _check(task: PartitionTask) -> PartitionReport:
    from trio_broker.runtime.real_disk import RealDisk
    from trio_broker.storage.partition_check import check_partition

    return check_partition(RealDisk(), task.directory, task.topic_partition, task.bounds)


def _check_all(tasks: Sequence[PartitionTask], processes: int) -> Iterator[PartitionReport]:
    """Check the partitions, the largest first so that none is left alone at the end; a terminal shows how far it is."""
    from trio_broker.runtime.processes import map_in_processes

    total = sum(task.size_bytes for task in tasks)
    done = 0
    largest_first = sorted(tasks, key=lambda task: task.size_bytes, reverse=True)
    shows_progress = sys.stderr.isatty()
    for count, report in enumerate(map_in_processes(_check, largest_first, processes), 1):
        done += report.checked_bytes
        if shows_progress:
            progress = f"{count} of {len(tasks)} partitions, {done / 1e6:.0f} of {total / 1e6:.0f} MB"
            click.echo(f"\r{progress}\x1b[K", err=True, nl=count == len(tasks))
        yield report


@attrs.define
class _Mended:
    """What was changed, a line for each change."""

    actions: list[str] = attrs.field(factory=list)

    @property
    def is_changed(self) -> bool:
        return bool(self.actions)


def _mend(
    disk: Any,
    directories: Sequence[DirectoryFacts],
    tasks: Sequence[PartitionTask],
    reports: Sequence[PartitionReport],
    rebuild: bool,
    accepted: set[TopicPartition],
) -> _Mended:
    """Do what the options say to the partitions and checkpoints that are damaged."""
    from trio_broker.runtime.clock import SystemClock
    from trio_broker.storage import partition_repair
    from trio_broker.storage.errors import CorruptCheckpoint
    from trio_broker.storage.findings import FindingKind

    mended = _Mended()
    now_ms = SystemClock().now_ms()
    by_directory = {task.directory: task for task in tasks}
    for report in reports:
        if not report.findings:
            continue
        task = by_directory[report.directory]
        name = report.topic_partition
        if name in accepted:
            try:
                aside = partition_repair.accept_loss(disk, task, report, now_ms)
            except CorruptCheckpoint as error:
                print_error(f"{name}: {error}")
                continue
            kept = ", ".join(path.name for path in aside) or "nothing"
            mended.actions.append(f"{name}: loss accepted, kept aside: {kept}")
        elif rebuild and partition_repair.rebuild(disk, task, report, now_ms):
            mended.actions.append(f"{name}: made anew from the log")
    for each in directories if rebuild else ():
        for finding in each.findings:
            if finding.kind is FindingKind.CHECKPOINT:
                disk.unlink(finding.path)
                mended.actions.append(f"{finding.path}: removed, the next start makes it anew")
    return mended


def _text(
    directories: Sequence[DirectoryFacts],
    reports: Sequence[PartitionReport],
    findings: Sequence[StorageFinding],
    actions: Sequence[str],
) -> Iterator[str]:
    yield from (f"done: {action}" for action in actions)
    for finding in findings:
        at = "" if finding.position is None else f" at position {finding.position}"
        at += "" if finding.offset is None else f", offset {finding.offset}"
        yield f"DAMAGED {finding.kind.value}: {finding.path}{at}: {finding.detail}"
    for report in reports:
        if report.torn_bytes:
            yield f"note: {report.directory}: {report.torn_bytes} bytes of a torn batch, which the next start cuts"
        if report.kept_aside:
            yield f"note: {report.directory}: put aside before: {', '.join(report.kept_aside)}"
    for each in directories:
        mine = [report for report in reports if report.directory.parent == each.path]
        state = "stopped cleanly" if each.was_clean else "not stopped cleanly"
        yield (
            f"{each.path}: {state}; {len(mine)} partitions, {sum(report.segments for report in mine)} segments,"
            f" {sum(report.batches for report in mine)} batches, {sum(report.records for report in mine)} records,"
            f" {sum(report.checked_bytes for report in mine)} bytes checked"
        )
    derived = sum(finding.kind.is_derived for finding in findings)
    yield (
        f"{len(findings)} damaged, of which {derived} can be made anew by --rebuild"
        if findings
        else "nothing is damaged"
    )


def _document(
    directories: Sequence[DirectoryFacts],
    reports: Sequence[PartitionReport],
    findings: Sequence[StorageFinding],
    actions: Sequence[str],
    code: int,
) -> dict[str, Any]:
    return {
        "exit_code": code,
        "actions": list(actions),
        "findings": [
            {
                "kind": finding.kind.value,
                "derived": finding.kind.is_derived,
                "path": str(finding.path),
                "partition": None if finding.topic_partition is None else str(finding.topic_partition),
                "position": finding.position,
                "offset": finding.offset,
                "detail": finding.detail,
            }
            for finding in findings
        ],
        "directories": [{"path": str(each.path), "was_clean": each.was_clean} for each in directories],
        "partitions": [
            {
                "partition": str(report.topic_partition),
                "path": str(report.directory),
                "segments": report.segments,
                "batches": report.batches,
                "records": report.records,
                "checked_bytes": report.checked_bytes,
                "torn_bytes": report.torn_bytes,
                "log_end_offset": report.log_end_offset,
                "kept_aside": report.kept_aside,
            }
            for report in reports
        ],
    }
