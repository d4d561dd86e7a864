"""Files with passing suffixes: what a crash in the middle of deletion or compaction leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

MakeLog = Callable[..., Any]


def names(bench: Any) -> set[str]:
    return {path.name for path in bench.directory.iterdir() if "index" not in path.name and "snapshot" not in path.name}


def segmented(make_log: MakeLog) -> Any:
    bench = make_log(segment_bytes=100)
    for _ in range(4):
        bench.append()
    return bench


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def test_deleted_and_uncommitted_files_are_removed(make_log: MakeLog):
    bench = segmented(make_log)
    for leftover in (name(7, ".log.deleted"), name(0, ".log.cleaned"), name(0, ".index.cleaned"), "x.snapshot.deleted"):
        bench.file(leftover).write_bytes(b"x")
    bench.crash()
    assert not [left for left in names(bench) if left.endswith((".deleted", ".cleaned"))]
    assert bench.offsets() == [0, 1, 2, 3]


def test_a_committed_swap_replaces_the_segments_it_covers(make_log: MakeLog):
    bench = segmented(make_log)
    merged = bench.file(name(0, ".log")).read_bytes() + bench.file(name(1, ".log")).read_bytes()
    bench.file(name(0, ".log.swap")).write_bytes(merged)
    bench.crash()
    assert names(bench) >= {name(0, ".log"), name(2, ".log"), name(3, ".log")}
    assert name(1, ".log") not in names(bench)
    assert bench.offsets() == [0, 1, 2, 3]


def test_a_swap_that_was_not_finished_is_undone(make_log: MakeLog):
    bench = segmented(make_log)
    shutil.copyfile(bench.file(name(1, ".log")), bench.file(name(1, ".log.swap")))
    bench.file(name(0, ".log.cleaned")).write_bytes(b"half")
    before = [bench.file(name(offset, ".log")).read_bytes() for offset in range(4)]
    bench.crash()
    assert [bench.file(name(offset, ".log")).read_bytes() for offset in range(4)] == before
    assert name(1, ".log.swap") not in names(bench)


def test_an_index_without_its_log_is_removed(make_log: MakeLog):
    bench = segmented(make_log)
    bench.file(name(77, ".index")).write_bytes(b"")
    bench.file(name(77, ".txnindex")).write_bytes(b"")
    bench.crash()
    assert not list(bench.directory.glob("*77.*"))
