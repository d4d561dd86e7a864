"""Loads all logs at a start, ``num.recovery.threads.per.data.dir`` of each data directory at a time.

A directory has threads of its own, so that a slow disk does not hold up the others. ``progress`` is one value, which
the log shows every few seconds, and the admin app whenever it is asked.

Source: Kafka's LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from trio_broker.concurrency.cancel_once import cancel_once
from trio_broker.runtime.workers import Workers
from trio_broker.storage.log_loading import ConfigFor, KnownAs, LogLoading, PartitionLoad
from trio_broker.storage.log_manager import LoadReport, LogManager
from trio_broker.storage.recovery_progress import RecoveryProgress, progress_text

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
"""How often a start that takes long says in the log how far it is."""


class LoadStopped(Exception):
    """``LogLoader.stop`` ended the loading before all logs were loaded; its text says how far it was."""


class LogLoader:
    """See the head of the file. Made before the directories are open, so that its progress can always be asked for."""

    def __init__(self) -> None:
        self._loading: LogLoading | None = None
        self._stopping = trio.Event()

    def progress(self) -> RecoveryProgress:
        """How far the start is with the logs."""
        return RecoveryProgress() if self._loading is None else self._loading.progress()

    def stop(self) -> None:
        """Begin to load no further log."""
        self._stopping.set()

    async def load(
        self,
        log_manager: LogManager,
        config_for: ConfigFor,
        known_as: KnownAs,
        *,
        workers: Workers,
        threads: int,
    ) -> LoadReport:
        """Load all logs of ``log_manager``, by so many ``threads`` for each of its directories.

        Raises:
            LoadStopped: the broker is to stop.
        """
        loading = await workers.run(partial(log_manager.plan_load, config_for, known_as))
        self._loading = loading
        bugs: list[Exception] = []

        def load_partition(load: PartitionLoad) -> None:
            try:
                log_manager.load_partition(loading, load)
            # What is wrong with a log is in its load. Anything else would end the thread, and its queue would not.
            except Exception as error:
                bugs.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_progress, loading)
            nursery.start_soon(cancel_once, self._stopping, nursery.cancel_scope)
            async with trio.open_nursery() as directories:
                for directory in log_manager.directories:
                    if loads := loading.loads_of(directory):
                        directories.start_soon(work_off, workers, load_partition, loads, threads)
            nursery.cancel_scope.cancel()
        if bugs:
            raise bugs[0]
        if not all(load.is_over for load in loading.loads):
            raise LoadStopped(f"stopped while it was {progress_text(loading.progress())}")
        return await workers.run(partial(log_manager.end_load, loading))


async def work_off(
    workers: Workers, load_partition: Callable[[PartitionLoad], None], loads: Sequence[PartitionLoad], threads: int
) -> None:
    """Do all of ``loads`` in threads of their own; when cancelled, those that have begun."""
    ended = trio.Event()
    remaining = len(loads)

    def note_ended(done: Sequence[PartitionLoad]) -> None:
        nonlocal remaining
        remaining -= len(done)
        if not remaining:
            ended.set()

    queue = workers.queue(load_partition, note_ended, threads=threads)
    for load in loads:
        queue.put(load)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        await ended.wait()
        nursery.cancel_scope.cancel()


async def log_progress(loading: LogLoading) -> None:
    """Say in the log how far it is, now and then, until cancelled."""
    while True:
        await trio.sleep(PROGRESS_SECONDS)
        log.info("%s", progress_text(loading.progress()))
