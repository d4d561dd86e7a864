"""Whose the metadata log of a data directory is: this broker's own, or a copy of what several brokers share.

``quorum-state`` tells. A broker that leads its log alone writes the file before the first record; a copy has none,
since nobody leads there. So metadata change hands by one name, of a file that is removed or renamed into place, and a
start on the wrong side is refused before it changes anything: alone it would decide beside the others, and as one of
several it would take their metadata for its own.

Source: docs/decisions/0092-metadata-change-hands-by-one-name.md.
"""

from __future__ import annotations

from pathlib import PurePath

from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.lost_metadata import end_of_log
from trio_broker.cluster.metadata_log import write_quorum_state
from trio_broker.runtime.disk import Disk
from trio_broker.storage import file_names


def is_own(disk: Disk, data_directory: PurePath) -> bool:
    """Whether the metadata log in ``data_directory`` is led alone, and so is no copy. Blocks."""
    return disk.exists(_quorum_state(data_directory))


def has_records(disk: Disk, data_directory: PurePath) -> bool:
    """Whether anything was ever decided there; False also where damage hides it, which the opening judges. Blocks."""
    directory = data_directory / file_names.CLUSTER_METADATA_DIRECTORY
    return disk.is_directory(directory) and bool(end_of_log(disk, directory))


def require_no_copy(disk: Disk, data_directory: PurePath) -> None:
    """Refuse to lead a copy alone. Blocks.

    Raises:
        MetadataLogUnusable: it is one.
    """
    if not is_own(disk, data_directory) and has_records(disk, data_directory):
        raise MetadataLogUnusable(
            f"{data_directory} has a copy of the metadata of several brokers: start it with their metadata.store, or"
            f" make them its own: trio-broker cluster leave --data-dir {data_directory}"
        )


def require_copy(disk: Disk, data_directory: PurePath) -> None:
    """Refuse to go on with a broker's own metadata as with a copy. Blocks.

    Raises:
        MetadataLogUnusable: they are its own.
    """
    if is_own(disk, data_directory) and has_records(disk, data_directory):
        raise MetadataLogUnusable(
            f"{data_directory} has metadata of its own: start it without metadata.store, or move them there:"
            f" trio-broker cluster join STORE --data-dir {data_directory}"
        )


def give_up(disk: Disk, data_directory: PurePath) -> None:
    """Make a copy of a broker's own metadata. Durable on return; blocks."""
    path = _quorum_state(data_directory)
    disk.unlink(path, missing_ok=True)
    disk.sync_directory(path.parent)


def take_over(disk: Disk, data_directory: PurePath, node_id: int, leader_epoch: int, directory_id: bytes) -> None:
    """Make a copy the own metadata of ``node_id``, which next leads in the epoch behind ``leader_epoch``. Durable on
    return; blocks."""
    write_quorum_state(disk, _quorum_state(data_directory), node_id, leader_epoch, directory_id)


def _quorum_state(data_directory: PurePath) -> PurePath:
    return data_directory / file_names.CLUSTER_METADATA_DIRECTORY / file_names.QUORUM_STATE
