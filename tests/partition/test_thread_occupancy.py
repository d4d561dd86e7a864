"""How the time of threads adds up."""

from __future__ import annotations

from trio_broker.partition.thread_occupancy import ThreadOccupancy


def test_time_counts_by_how_many_threads_are_busy():
    occupancy = ThreadOccupancy()
    occupancy.advance_to(0, 2)
    occupancy.note_queued(0)
    occupancy.note_queued(0)
    occupancy.note_begun(10)
    occupancy.note_begun(15)
    occupancy.note_ended(40)
    occupancy.note_ended(100)
    occupancy.advance_to(110, 2)
    statistics = occupancy.statistics()
    assert statistics.busy_ns == {0: 20, 1: 65, 2: 25}
    assert (statistics.all_busy_ns, statistics.thread_ns, statistics.waiting_ns) == (25, 115, 25)
    assert (statistics.busy, statistics.waiting) == (0, 0)


def test_work_that_is_under_way_counts_up_to_now():
    occupancy = ThreadOccupancy()
    occupancy.note_queued(0)
    occupancy.note_queued(0)
    occupancy.note_begun(0)
    occupancy.advance_to(50, 1)
    occupancy.advance_to(80, 1)
    statistics = occupancy.statistics()
    assert (statistics.all_busy_ns, statistics.waiting_ns) == (80, 80)
    assert (statistics.busy, statistics.waiting) == (1, 1)


def test_notes_of_several_threads_are_put_into_their_order():
    occupancy = ThreadOccupancy()
    occupancy.note_begun(30)
    occupancy.note_queued(0)
    occupancy.note_ended(50)
    occupancy.advance_to(60, 1)
    assert occupancy.statistics().waiting_ns == 30
    assert occupancy.statistics().busy_ns == {0: 40, 1: 20}


def test_a_late_note_takes_no_time_back():
    occupancy = ThreadOccupancy()
    occupancy.advance_to(0, 1)
    occupancy.advance_to(100, 1)
    occupancy.note_begun(90)
    occupancy.advance_to(110, 1)
    assert occupancy.statistics().busy_ns == {0: 100, 1: 10}


def test_when_fewer_threads_are_wanted_than_are_busy_all_are_busy():
    occupancy = ThreadOccupancy()
    occupancy.note_begun(0)
    occupancy.note_begun(0)
    occupancy.advance_to(10, 1)
    assert occupancy.statistics().all_busy_ns == 10
