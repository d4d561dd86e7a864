"""What a process does whose answers are not wanted any more: it ends without a word, if that is the reason."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from trio_broker.spark.workarounds import early_end
from trio_broker.spark.workarounds.early_end import end_with_the_query, ending_quietly
from trio_broker.spark.workarounds.worker_memory import STREAM_PLANNER


@pytest.fixture
def exit_codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which this process, in the place of a worker, would have ended."""
    codes: list[int] = []
    monkeypatch.setattr(early_end, "is_worker", lambda: True)
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def rows() -> Iterator[int]:
    with ending_quietly():
        yield from range(1000)


def records_to_batches(numbers: Iterator[int]) -> Iterator[int]:
    """A generator around that of the reader, which does not close it itself: as PySpark has it."""
    for each in numbers:  # noqa: UP028 (``yield from`` would close it)
        yield each


def write(numbers: Iterator[int], error: Exception | None) -> None:
    """Write rows as PySpark's worker does, with an error at the third."""
    try:
        for position, _ in enumerate(numbers):
            if position == 2 and error is not None:
                raise error
    finally:
        numbers.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError()])
def test_a_worker_whose_jvm_reads_no_more_rows_ends_at_once(error: Exception, exit_codes: list[int]):
    with pytest.raises(type(error)):
        write(records_to_batches(rows()), error)
    assert exit_codes == [0]


def test_an_error_of_the_rows_is_left_to_pyspark(exit_codes: list[int]):
    with pytest.raises(ValueError, match="cannot be written"):
        write(records_to_batches(rows()), ValueError("cannot be written"))
    assert exit_codes == []


def test_a_task_that_is_read_to_its_end_leaves_the_worker_to_the_next_one(exit_codes: list[int]):
    write(records_to_batches(rows()), None)
    numbers = rows()
    next(numbers)
    numbers.close()  # type: ignore[attr-defined]
    assert exit_codes == []


def test_no_other_process_is_ended(monkeypatch: pytest.MonkeyPatch):
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with pytest.raises(BrokenPipeError):
        write(records_to_batches(rows()), BrokenPipeError())
    assert codes == []


@pytest.mark.parametrize(
    ("main_module", "error", "codes"),
    [
        (STREAM_PLANNER, EOFError(), [0]),
        (STREAM_PLANNER, ValueError("no such topic"), []),
        (STREAM_PLANNER, None, []),
        ("pytest", EOFError(), []),
    ],
)
def test_a_planner_of_a_stream_ends_when_the_jvm_has_gone_and_has_nothing_else_to_report(
    main_module: str,
    error: Exception | None,
    codes: list[int],
    exit_codes: list[int],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(early_end, "main_module", lambda: main_module)
    with contextlib.suppress(Exception):
        try:
            if error is not None:
                raise error
        finally:
            end_with_the_query()
    assert exit_codes == codes
