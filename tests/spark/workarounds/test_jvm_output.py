"""What a JVM writes on standard error is taken line by line; its first lines are shown only if its start fails, and its
last ones not at all."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.waits import within
from trio_broker.spark.workarounds import jvm_output
from trio_broker.spark.workarounds.jvm_output import STANDARD_ERROR, drop_last_lines, jvm_lines_shown_by

SECONDS = 30

CHILD = """
import sys
print("WARNING: Using incubator modules", file=sys.stderr, flush=True)
print("started", flush=True)
for line in sys.stdin:
    print(line, end="", file=sys.stderr, flush=True)
"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[str]:
    monkeypatch.setattr(jvm_output, "_is_stopping", threading.Event())
    return queue.Queue()


@contextmanager
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that writes on standard error what it is given, in the place of a JVM."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_the_first_lines_are_dropped_and_later_ones_shown(shown: queue.Queue[str]):
    with jvm_lines_shown_by(shown.put, from_the_start=False):
        started = child()
        process = started.__enter__()
    write(process, "ERROR Executor: ä\nlast\n")

    assert [within(lambda seconds: shown.get(timeout=seconds), SECONDS) for _ in range(2)] == [
        "ERROR Executor: ä",
        "last",
    ]
    started.__exit__(None, None, None)
    assert shown.empty()


def test_all_lines_are_shown_to_those_who_want_them(shown: queue.Queue[str]):
    with jvm_lines_shown_by(shown.put, from_the_start=True), child():
        assert within(lambda seconds: shown.get(timeout=seconds), SECONDS) == "WARNING: Using incubator modules"


@pytest.mark.parametrize("from_the_start", [False, True])
def test_the_last_lines_are_shown_to_those_alone_who_see_the_first(shown: queue.Queue[str], from_the_start: bool):
    with jvm_lines_shown_by(shown.put, from_the_start=from_the_start):
        started = child()
        process = started.__enter__()
    write(process, "a task failed\n")
    first = ["WARNING: Using incubator modules"] if from_the_start else []
    for line in (*first, "a task failed"):
        assert within(lambda seconds: shown.get(timeout=seconds), SECONDS) == line
    drop_last_lines()
    write(process, "Traceback (most recent call last):\n")
    started.__exit__(None, None, None)
    for each in threading.enumerate():
        if each.name == "jvm-output":
            within(each.join, SECONDS)

    assert [shown.get_nowait() for _ in range(shown.qsize())] == ["Traceback (most recent call last):"][:from_the_start]


def test_the_first_lines_are_shown_if_the_start_fails(shown: queue.Queue[str]):
    with pytest.raises(RuntimeError), jvm_lines_shown_by(shown.put, from_the_start=False), child():
        raise RuntimeError

    assert shown.get_nowait() == "WARNING: Using incubator modules"


def test_standard_error_is_as_before_at_the_end(shown: queue.Queue[str]):
    before = os.fstat(STANDARD_ERROR)
    with jvm_lines_shown_by(shown.put, from_the_start=True):
        assert os.fstat(STANDARD_ERROR).st_ino != before.st_ino

    assert os.path.samestat(os.fstat(STANDARD_ERROR), before)
