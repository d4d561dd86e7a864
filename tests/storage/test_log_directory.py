"""A data directory: whose it is, that only one works in it, how it was left."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import DataDirectoryError, DirectoryLocked, ForeignDirectory
from trio_broker.storage.log_directory import LogDirectory, MetaProperties

PROPERTIES = MetaProperties("clusterclusterclusterA", 1, "directorydirectoryAAAA")


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(RealDisk(), tmp_path / "data")


def test_meta_properties_are_kafkas_version_one(directory: LogDirectory):
    assert directory.open() is None
    directory.write_meta_properties(PROPERTIES)
    assert Path(directory.path / "meta.properties").read_text().splitlines() == [
        "version=1",
        "cluster.id=clusterclusterclusterA",
        "node.id=1",
        "directory.id=directorydirectoryAAAA",
    ]
    directory.unlock()
    assert directory.open() == PROPERTIES
    directory.unlock()


def test_what_java_writes_is_read(directory: LogDirectory):
    text = b"#\n#Sat Nov 21 12:00:00 UTC 2026\ncluster.id=a\\:b\ndirectory.id=d\nnode.id=7\nversion=1\n"
    assert MetaProperties.decode(text, "x") == MetaProperties("a:b", 7, "d")


@pytest.mark.parametrize(
    "text", [b"", b"version=0\nbroker.id=1\ncluster.id=x\n", b"version=1\ncluster.id=x\nnode.id=y\n"]
)
def test_other_properties_are_refused(text: bytes):
    with pytest.raises(ForeignDirectory):
        MetaProperties.decode(text, "x")


def test_a_second_broker_is_refused_with_one_clear_line(directory: LogDirectory):
    directory.open()
    with pytest.raises(DirectoryLocked, match="in use by another broker") as caught:
        LogDirectory(RealDisk(), directory.path).open()
    assert "\n" not in str(caught.value)
    directory.unlock()
    again = LogDirectory(RealDisk(), directory.path)
    again.open()
    again.unlock()


def test_a_posix_lock_as_java_takes_it_is_respected_and_its_holder_named(directory: LogDirectory):
    Path(directory.path).mkdir()
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True);"
        "sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(directory.path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLocked, match=rf"is locked by process {other.pid}$"):
            directory.open()
    finally:
        other.communicate()


@pytest.mark.parametrize("name", ["stuff", "orders-x", "-3", "orders-03", ".git", "orders-1.tmp"])
def test_directories_that_no_broker_makes_are_refused(directory: LogDirectory, name: str):
    Path(directory.path / name).mkdir(parents=True)
    with pytest.raises(ForeignDirectory, match="not of the form topic-partition"):
        directory.open()


@pytest.mark.parametrize(
    "name",
    [
        "orders-3",
        "a-b-c-12",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "orders-3.0123456789abcdef0123456789abcdef-delete",
        "orders-3.0123456789abcdef0123456789abcdef-stray",
    ],
)
def test_kafkas_directories_and_any_files_are_fine(directory: LogDirectory, name: str):
    Path(directory.path / name).mkdir(parents=True)
    Path(directory.path / "notes.txt").write_text("mine")
    Path(directory.path.joinpath("meta.properties")).write_bytes(PROPERTIES.encode())
    assert directory.open() == PROPERTIES
    directory.unlock()


def test_partitions_without_meta_properties_are_refused(directory: LogDirectory):
    Path(directory.path / "orders-0").mkdir(parents=True)
    with pytest.raises(ForeignDirectory, match=r"no meta\.properties"):
        directory.open()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(DataDirectoryError):
        LogDirectory(RealDisk(), path).open()


def test_the_marker_is_kafkas_json_and_is_gone_once_begun(directory: LogDirectory):
    directory.open()
    directory.begin()
    assert not directory.was_clean
    directory.write_clean_shutdown_marker(17)
    assert Path(directory.path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":17}'
    directory.begin()
    assert directory.was_clean
    assert not (directory.path / ".kafka_cleanshutdown").exists()
    directory.unlock()


def test_an_unreadable_checkpoint_is_as_good_as_none(directory: LogDirectory):
    directory.open()
    Path(directory.path / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    directory.begin()
    assert directory.recovery_points == {}
    directory.unlock()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced_by_links(path: Path) -> None:
    """As a backup by hard links, of which the copy is left in the place of the original."""
    path.rename(path.with_name("elsewhere"))
    shutil.copytree(path.with_name("elsewhere"), path, copy_function=lambda old, new: Path(new).hardlink_to(old))


def empty_in_its_place(path: Path) -> None:
    """As the mount point behind a lazy unmount."""
    path.rename(path.with_name("elsewhere"))
    path.mkdir()


def without_its_lock(path: Path) -> None:
    (path / ".lock").unlink()


def with_another_lock(path: Path) -> None:
    (path / ".lock").unlink()
    (path / ".lock").touch()


def a_file_in_its_place(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


@pytest.mark.parametrize(
    "change",
    [
        shutil.rmtree,
        renamed,
        replaced_by_links,
        empty_in_its_place,
        without_its_lock,
        with_another_lock,
        a_file_in_its_place,
    ],
)
def test_a_directory_that_is_no_longer_the_locked_one_is_a_failed_disk(directory: LogDirectory, change):
    directory.open()
    directory.require_in_place()
    change(Path(directory.path))
    with pytest.raises(OSError, match="removed, renamed or unmounted") as caught:
        directory.require_in_place()
    assert caught.value.errno == errno.ESTALE
    directory.unlock()


def test_a_link_may_follow_the_directory_to_another_name(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "data").symlink_to("a")
    directory = LogDirectory(RealDisk(), tmp_path / "data")
    directory.open()
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("b")
    directory.require_in_place()
    directory.unlock()


def test_what_is_watched_from_now_on_disturbs_no_thread_that_looks(directory: LogDirectory, monkeypatch):
    directory.open()
    later, identity = Path(directory.path) / "later", directory.disk.identity
    later.touch()

    def watch_meanwhile(_, path):
        if path != later:
            directory.watch(later)
        return identity(path)

    monkeypatch.setattr(RealDisk, "identity", watch_meanwhile)
    directory.require_in_place()
    directory.unlock()
