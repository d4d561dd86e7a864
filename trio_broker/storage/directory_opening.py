"""Opens the data directories of a broker together: each is locked and seen to be ours, and new ones are given our ids.

Every check comes before the first change: a start that is refused marks no directory as ours.

A directory that cannot be made, read or written ends the start, and so does an empty one beside others that were in
use, whose disk is probably not mounted. One of several brokers goes on without it, as if its disk had failed later:
other brokers lead what is there. No broker goes on without the first directory, which has the metadata log.

Source: Kafka's LogManager.createAndValidateLogDirs and MetaPropertiesEnsemble; KIP-112, KIP-858.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath

import attrs

from kafka_wire.primitives import uuid_text
from trio_broker.runtime.randomness import Random, random_uuid
from trio_broker.storage.errors import SHORTAGE_ERRNOS, DataDirectoryError, DirectoryUnusable
from trio_broker.storage.log_directory import LogDirectory, MetaProperties

logger = logging.getLogger(__name__)

CheckDirectories = Callable[[Sequence[PurePath]], object]
"""Looks at locked directories in which nothing was changed; what it raises ends the start."""


@attrs.frozen(kw_only=True)
class DirectoryOpening:
    """How the directories of one node are opened.

    ``allow_new`` lets a new directory join others that have been in use. ``is_one_of_several`` brokers goes on without
    a directory that cannot be opened.
    """

    node_id: int
    random: Random
    allow_new: bool
    is_one_of_several: bool

    def open(self, directories: Sequence[LogDirectory], cluster_id: str | None, check: CheckDirectories) -> str:
        """Lock all directories and see that they are ours; return the id of their cluster, which is ``cluster_id`` if
        that is given.

        Raises:
            DataDirectoryError: one is locked, foreign, of another node or cluster, or cannot be opened.
            OSError: a disk failed.
        """
        self._each(directories, LogDirectory.open)
        cluster_id = agreed_cluster_id(online(directories), self.node_id, cluster_id)
        if cluster_id is None:
            cluster_id = uuid_text(random_uuid(self.random))
        if not self.allow_new:
            used = [each.path for each in directories if each.properties is not None]
            self._each(directories, partial(require_mounted, used))
        check([each.path for each in online(directories)])
        self._each(directories, LogDirectory.remove_deleted_if_needed)
        self._each(directories, partial(self._begin, cluster_id))
        return cluster_id

    def _each(self, directories: Sequence[LogDirectory], work: Callable[[LogDirectory], object]) -> None:
        """Do ``work`` on each that is online; where it fails, and the broker may do without, the directory is not."""
        for directory in online(directories):
            try:
                work(directory)
            except (DirectoryUnusable, OSError) as error:
                # A shortage is the machine's, and passes.
                is_borne = self.is_one_of_several and error.errno not in SHORTAGE_ERRNOS
                if directory is directories[0] or not is_borne:
                    raise
                logger.error("%s is offline until a start that can open it: %s", directory.path, error)
                directory.failure = OSError(error.errno, str(error))
                directory.unlock()

    def _begin(self, cluster_id: str, directory: LogDirectory) -> None:
        if directory.properties is None:
            directory_id = uuid_text(random_uuid(self.random))
            directory.write_meta_properties(MetaProperties(cluster_id, self.node_id, directory_id))
        directory.begin()


def online(directories: Sequence[LogDirectory]) -> list[LogDirectory]:
    """Those whose disk is not known to have failed."""
    return [each for each in directories if each.failure is None]


def agreed_cluster_id(directories: Sequence[LogDirectory], node_id: int, cluster_id: str | None) -> str | None:
    """The cluster that the directories belong to, ``cluster_id`` if that is known; None where none of them says it.

    Raises:
        DataDirectoryError: one is of another node, or of another cluster than the others.
    """
    for directory in directories:
        if (properties := directory.properties) is None:
            continue
        if properties.node_id != node_id:
            raise DataDirectoryError(f"{directory.path} belongs to node {properties.node_id}, this is node {node_id}")
        if cluster_id is None:
            cluster_id = properties.cluster_id
        elif cluster_id != properties.cluster_id:
            raise DataDirectoryError(
                f"{directory.path} belongs to cluster {properties.cluster_id}, expected {cluster_id}"
            )
    return cluster_id


def require_mounted(used: Sequence[PurePath], directory: LogDirectory) -> None:
    """Refuse an empty directory beside those that were ``used``: its disk is probably not mounted.

    To begin there anew would give every partition that lies on that disk an empty log.

    Raises:
        DirectoryUnusable: it is one.
    """
    if directory.properties is None and used:
        raise DirectoryUnusable(
            f"{directory.path} is empty while {used[0]} has been in use: is its disk mounted?"
            " To add a new directory, start once with log.dirs.allow.new=true",
            errno.ENODEV,
        )
