"""Claims about the CPU times of a broker and its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.runtime.cpu_clock import SystemCpuClock

PRESSURE = """some avg10=0.54 avg60=0.81 avg300=1.74 total=7357859456
full avg10=0.00 avg60=0.00 avg300=0.00 total=12
"""


def test_the_pressure_is_the_time_in_which_some_task_waited_for_a_cpu(tmp_path: Path) -> None:
    file = tmp_path / "cpu"
    file.write_text(PRESSURE)
    assert SystemCpuClock(file).times().pressure_ns == 7_357_859_456_000


@pytest.mark.parametrize("content", [None, b"", b"some avg10=0.54\n", b"\xff\xfe"])
def test_the_pressure_is_unknown_where_the_kernel_counts_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "cpu").write_bytes(content)
    assert SystemCpuClock(tmp_path / "cpu").times().pressure_ns is None


def test_the_thread_has_used_no_more_than_its_process() -> None:
    clock = SystemCpuClock()
    earlier = clock.times()
    sum(range(100_000))
    later = clock.times()
    assert 0 < later.loop_ns - earlier.loop_ns <= later.process_ns - earlier.process_ns + 1_000_000
