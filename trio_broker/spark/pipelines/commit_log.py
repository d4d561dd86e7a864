"""The commit log of a job: what it has done, batch by batch, as small JSON files in its checkpoint directory.

    <directory>/job.json                          which job it is: an id drawn at its first start, its kind and settings
    <directory>/commits/000000000012.json         batch 12: the offsets it ends at, and what must be done with it
    <directory>/commits/000000000012.done         … which has been done
    <directory>/lock                              held by the process that runs the job

A batch is committed in two steps. ``prepare`` writes its file, and from then on the batch is committed: what the job
must still do for it (rename files, add them to a table) is listed in the file, is done after a crash as well, and may
be done twice. ``finish`` marks the batch as applied. A crash before ``prepare`` leaves no trace, and the same records
are read again.

Each file is written to another name, fsynced and renamed, so it is there as a whole or not at all. Old commits are
removed: the newest one has the offsets of all partitions.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import write_atomically
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.errors import SparkJobError

VERSION: Final = 1
"""The version of the files; other versions are refused."""

KEPT_COMMITS: Final = 100
"""How many of the newest commits are kept. A job needs one; the others are a history for its operator."""

JOB_FILE: Final = "job.json"
LOCK_FILE: Final = "lock"
COMMITS: Final = "commits"
DONE: Final = ".done"

_COMMIT_NAME = re.compile(r"(\d{12})\.json")


class CommitLogError(SparkJobError):
    """A job's directory is in use, damaged, or another job's."""


@attrs.frozen
class Commit:
    """A committed batch.

    ``offsets`` has, for every partition that the job ever read, the offset behind the last one read. ``facts`` is the
    job's own part of the commit, as JSON.
    """

    batch: int
    offsets: Mapping[TopicPartition, int]
    facts: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.define
class CommitLog:
    """The commits of one job. ``open`` takes the directory's lock; leaving the context manager releases it."""

    directory: Path
    job_id: str = ""
    last: Commit | None = None
    last_is_finished: bool = True
    _lock: int | None = None

    def open(self, kind: str, settings: Mapping[str, Any] | None = None) -> Self:
        """Lock the directory, which is created at the first start, and read the last commit.

        ``kind`` and ``settings`` must not change between two runs of one job.

        Raises:
            CommitLogError: another process runs the job, the directory is another job's, or cannot be read or created.
        """
        try:
            with _as_commit_log_errors():
                (self.directory / COMMITS).mkdir(parents=True, exist_ok=True)
                self._take_lock()
                self.job_id = self._identify(kind, dict(settings or {}))
                self.last = read_last_commit(self.directory)
                self.last_is_finished = self.last is None or self._path(self.last.batch).with_suffix(DONE).exists()
        except BaseException:
            self.close()
            raise
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def next_batch(self) -> int:
        """The number of the next batch; the first is 0."""
        return self.last.batch + 1 if self.last else 0

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """The offset behind the last one read, of every partition ever read; empty before the first commit."""
        return self.last.offsets if self.last else {}

    def prepare(self, offsets: Mapping[TopicPartition, int], facts: Mapping[str, Any] | None = None) -> Commit:
        """Commit the next batch and return it. Partitions that are not in ``offsets`` keep their offset.

        Raises:
            CommitLogError: it cannot be written.
        """
        assert self.last_is_finished, f"{self.directory}: batch {self.next_batch - 1} is not finished"
        commit = Commit(self.next_batch, {**self.offsets, **offsets}, dict(facts or {}))
        document = {
            "version": VERSION,
            "batch": commit.batch,
            "offsets": offsets_document(commit.offsets),
            "facts": dict(commit.facts),
        }
        with _as_commit_log_errors():
            write_atomically(RealDisk(), self._path(commit.batch), _encode(document))
        self.last, self.last_is_finished = commit, False
        return commit

    def finish(self) -> None:
        """Mark the last batch as applied.

        Raises:
            CommitLogError: it cannot be written.
        """
        assert self.last is not None
        path = self._path(self.last.batch)
        with _as_commit_log_errors():
            # Old commits go last: a crash in between leaves one commit too many, never one too few.
            path.with_suffix(DONE).touch()
            RealDisk().sync_directory(path.parent)
            self.last_is_finished = True
            self._remove_old(self.last.batch - KEPT_COMMITS)

    def _take_lock(self) -> None:
        # The kernel releases the lock with the process, so that a killed job can be started again at once.
        path = self.directory / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise CommitLogError(f"{self.directory}: another process runs this job; {path} is locked") from None
        self._lock = descriptor

    def _identify(self, kind: str, settings: dict[str, Any]) -> str:
        path = self.directory / JOB_FILE
        if not path.exists():
            job_id = secrets.token_hex(8)
            document = {"version": VERSION, "job_id": job_id, "kind": kind, "settings": settings}
            write_atomically(RealDisk(), path, _encode(document))
            return job_id
        found = _decode(path)
        for name, value in {"kind": kind, **{f"settings.{key}": value for key, value in settings.items()}}.items():
            known = found["kind"] if name == "kind" else found["settings"].get(name.removeprefix("settings."))
            if known != value:
                what = name.removeprefix("settings.")
                raise CommitLogError(
                    f"{self.directory} is of another job: its {what} is {known!r}, not {value!r};"
                    " name another checkpoint directory"
                )
        return str(found["job_id"])

    def _path(self, batch: int) -> Path:
        return commit_path(self.directory, batch)

    def _remove_old(self, last: int) -> None:
        for batch in _batches(self.directory):
            if batch <= last:
                # The marker first: a marker without its commit would never be found again.
                path = self._path(batch)
                path.with_suffix(DONE).unlink(missing_ok=True)
                path.unlink(missing_ok=True)


@contextmanager
def _as_commit_log_errors() -> Iterator[None]:
    """Turn an error of the file system into a ``CommitLogError``."""
    try:
        yield
    except OSError as error:
        raise CommitLogError(f"{error.filename}: {error.strerror}") from error


def read_last_commit(directory: Path) -> Commit | None:
    """Return the last commit in ``directory``, None before a job's first one; nothing is locked or changed.

    Raises:
        CommitLogError: the commit cannot be read.
    """
    if not (batches := _batches(directory)):
        return None
    path = commit_path(directory, max(batches))
    found = _decode(path)
    try:
        return Commit(int(found["batch"]), read_offsets_document(found["offsets"]), found["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommitLogError(f"{path}: damaged: {error!r}") from error


def commit_path(directory: Path, batch: int) -> Path:
    """Return the path of a batch's commit."""
    return directory / COMMITS / f"{batch:012}.json"


def _batches(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory / COMMITS)
    except FileNotFoundError:
        return []
    return [int(found[1]) for name in names if (found := _COMMIT_NAME.fullmatch(name))]


def offsets_document(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark writes them, sorted: ``{"orders": {"0": 42}}``."""
    document: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return document


def read_offsets_document(document: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return what ``offsets_document`` wrote."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"


def _decode(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise CommitLogError(f"{path}: damaged: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise CommitLogError(f"{path}: version {version!r}, expected {VERSION}")
    return found
