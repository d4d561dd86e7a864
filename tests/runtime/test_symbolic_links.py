"""A symbolic link in a data directory leads nothing of the broker's out of it."""

from __future__ import annotations

from pathlib import Path

from trio_broker.runtime.disk import write_atomically
from trio_broker.runtime.real_disk import RealDisk


def test_a_link_by_the_name_of_a_temporary_file_is_replaced_and_not_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"somebody else's")
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    (tmp_path / "recovery-point-offset-checkpoint.tmp").symlink_to(outside)
    write_atomically(RealDisk(), checkpoint, b"0\n0\n")
    assert outside.read_bytes() == b"somebody else's"
    assert checkpoint.read_bytes() == b"0\n0\n"
    assert not checkpoint.is_symlink()


def test_of_a_link_to_a_directory_the_link_alone_is_removed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    link = tmp_path / "orders-0.0123-delete"
    link.symlink_to(outside)
    RealDisk().remove_tree(link)
    assert not link.is_symlink()
    assert (outside / "kept").read_bytes() == b"kept"
