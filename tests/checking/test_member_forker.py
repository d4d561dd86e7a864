"""The nursery starts, signals and buries members; what they talk to is not there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.checking.history import Op, read_history
from tests.checking.member_forker import MemberForker
from tests.checking.recorded_members import ConfluentRange

pytestmark = pytest.mark.compat

NOBODY = "127.0.0.1:1"


def test_a_member_that_is_asked_to_leave_at_once_leaves_and_one_that_is_killed_is_killed(tmp_path: Path) -> None:
    nursery = MemberForker(tmp_path)
    try:
        for process in ("leaves", "killed"):
            nursery.start(process, ConfluentRange.name, "g", NOBODY, "topic")
        nursery.signal("leaves", signal.SIGTERM)
        nursery.signal("killed", signal.SIGKILL)
        nursery.wait_until_ended("leaves", "killed")
        nursery.signal("killed", signal.SIGKILL)
    finally:
        nursery.close()
    assert nursery.ended == {"leaves": 0, "killed": -signal.SIGKILL}
    closed = [event.process for event in read_history(tmp_path) if event.op is Op.CLOSE]
    assert closed == ["leaves"]


def test_members_end_with_the_nursery(tmp_path: Path) -> None:
    nursery = MemberForker(tmp_path)
    nursery.start("stays", ConfluentRange.name, "g", NOBODY, "topic")
    nursery.close()
    assert nursery.ended == {"stays": -signal.SIGKILL}
