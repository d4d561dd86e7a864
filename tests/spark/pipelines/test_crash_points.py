"""Only what is meant to die dies."""

from __future__ import annotations

import os

import trio

from tests.spark.pipelines.crash_points import crashing


def test_a_driver_dies(tmp_path):
    with crashing(0):
        os.mkdir(tmp_path / "made")
    assert not (tmp_path / "made").exists()


async def test_a_broker_in_this_process_goes_on(tmp_path):
    with crashing(0) as crash:
        os.mkdir(tmp_path / "loop")
        await trio.to_thread.run_sync(os.mkdir, tmp_path / "thread")
    assert sorted(os.listdir(tmp_path)) == ["loop", "thread"]
    assert crash.moments == 0
