"""The files of machine code: whole or not there, and only where nobody else could have put them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trio_broker.spark import code_cache
from trio_broker.spark.code_cache import CodeCache, is_private, user_cache


def private(*directories: Path) -> CodeCache:
    return CodeCache(directories, private=frozenset(directories))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    private(tmp_path / "a").write("f", b"code")

    assert private(tmp_path / "a").read("f") == b"code"
    assert private(tmp_path / "a").read("g") is None


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:-1], lambda data: data[:40] + bytes(len(data) - 40), lambda data: bytes(20)],
    ids=["empty", "cut", "zeros", "zeros only"],
)
def test_a_file_that_a_power_cut_left_is_not_there_and_is_written_again(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    cache = private(tmp_path)
    cache.write("f", b"code" * 100)
    (tmp_path / "f").write_bytes(damage((tmp_path / "f").read_bytes()))

    assert cache.read("f") is None
    cache.write("f", b"code" * 100)
    assert cache.read("f") == b"code" * 100


def test_a_directory_that_others_can_write_to_is_neither_read_nor_written(tmp_path: Path) -> None:
    cache = private(tmp_path / "a")
    cache.write("f", b"code")
    (tmp_path / "a").chmod(0o770)
    cache.write("g", b"code")

    assert cache.read("f") is None
    (tmp_path / "a").chmod(0o700)
    assert cache.read("f") == b"code"
    assert cache.read("g") is None


def test_a_directory_is_as_private_as_those_above_it(tmp_path: Path) -> None:
    below = tmp_path / "open" / "mine"
    below.mkdir(parents=True, mode=0o700)
    (tmp_path / "open").chmod(0o777)
    assert not is_private(below)
    # Others cannot replace what is not theirs.
    (tmp_path / "open").chmod(0o1777)
    assert is_private(below)


def test_a_link_is_as_private_as_where_it_leads(tmp_path: Path) -> None:
    for name, mode in (("mine", 0o700), ("open", 0o777)):
        (tmp_path / name / "cache").mkdir(parents=True, mode=0o700)
        (tmp_path / name).chmod(mode)
        (tmp_path / f"to-{name}").symlink_to(tmp_path / name / "cache")

    assert is_private(tmp_path / "to-mine")
    assert not is_private(tmp_path / "to-open")


def test_a_directory_of_another_user_is_not_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)

    assert not is_private(tmp_path)


def test_where_nothing_can_be_written_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = private(tmp_path / "file" / "a")
    cache.write("f", b"code")
    with cache.lock("f"):
        assert cache.read("f") is None


def test_a_directory_that_cannot_be_written_to_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path / "baked").write("f", b"code")
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path / "baked")
    cache = private(tmp_path / "baked", tmp_path / "mine")
    cache.write("g", b"other")

    assert cache.read("f") == b"code"
    assert cache.read("g") == b"other"
    assert not (tmp_path / "baked" / "g").exists()


def test_one_process_at_a_time_has_the_lock_and_the_others_wait_no_longer_than_a_minute(tmp_path: Path) -> None:
    cache, slept = private(tmp_path), [0.0]
    with cache.lock("f"):
        # As another process would: locks belong to open files.
        with cache.lock("f", now=lambda: sum(slept), sleep=slept.append):
            assert sum(slept) >= code_cache.WAIT_SECONDS
        with cache.lock("g", sleep=slept.append):
            pass
    waited = len(slept)
    with cache.lock("f", sleep=slept.append):
        assert len(slept) == waited


def test_the_directory_that_the_user_names_is_the_only_one(tmp_path: Path) -> None:
    cache = user_cache({"NUMBA_CACHE_DIR": str(tmp_path), "HOME": "/home/me"})

    assert cache == CodeCache((tmp_path / "trio-broker",))


def test_without_one_the_home_and_the_temporary_files_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the package, of which an installer removes what it has put there."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    cache = user_cache({"HOME": "/home/me"})

    assert cache.directories == (
        Path("/home/me/.cache/trio-broker/machine-code"),
        Path(f"/tmp/trio-broker-{os.geteuid()}/machine-code"),
    )
    assert cache.private == set(cache.directories)
