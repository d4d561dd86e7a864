"""Histories are written by many, some of whom are killed, and read by one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.checking.history import HISTORY_SUFFIX, Event, Op, Outcome, Record, Recorder, read_history


def test_what_was_recorded_is_read_back_in_the_order_in_which_it_began(tmp_path: Path) -> None:
    one, two = Recorder(tmp_path, "one", "g"), Recorder(tmp_path, "two", "g")
    with one.doing(Op.ASSIGN, partitions=[0, 1], member_id="m", generation=4):
        two.tell(Op.POLL, records=[(0, 5, 77)])
    first, second = read_history(tmp_path)
    assert (first.process, first.op, first.group, first.partitions) == ("one", Op.ASSIGN, "g", (0, 1))
    assert (first.member_id, first.generation, first.outcome) == ("m", 4, Outcome.OK)
    assert (second.process, second.records) == ("two", (Record(0, 5, 77),))
    assert first.invoked <= second.invoked <= second.completed <= first.completed


def test_what_its_process_did_not_live_to_finish_is_in_doubt(tmp_path: Path) -> None:
    with Recorder(tmp_path, "killed").doing(Op.COMMIT, offsets={2: 9}):
        [event] = read_history(tmp_path)
    assert (event.outcome, event.completed, event.offsets) == (Outcome.INFO, math.inf, {2: 9})


def test_an_error_leaves_doubt_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="why"), Recorder(tmp_path, "one").doing(Op.COMMIT):
        raise ValueError("why")
    [event] = read_history(tmp_path)
    assert (event.outcome, event.error) == (Outcome.INFO, "ValueError: why")


def test_a_draft_may_tell_at_its_end_what_it_learnt(tmp_path: Path) -> None:
    with Recorder(tmp_path, "one").doing(Op.FETCH_OFFSETS) as draft:
        draft.tell(offsets={0: None, 1: 3})
    [event] = read_history(tmp_path)
    assert event.offsets == {0: None, 1: 3}


def test_other_files_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text("hello")
    assert read_history(tmp_path) == []
    assert not list(tmp_path.glob(f"*{HISTORY_SUFFIX}"))


def test_an_event_tells_itself_on_one_line() -> None:
    event = Event("p", Op.COMMIT, 1.0, 2.0, Outcome.OK, group="g", generation=3, offsets={0: 7})
    assert str(event) == "1.000-2.000 p g generation 3 commit {0: 7} ok"
