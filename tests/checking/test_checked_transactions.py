"""The checker of transactions finds every promise to producers and readers that is broken, and nothing else."""

from __future__ import annotations

from collections import defaultdict

from tests.checking.delivery import ONLY_WHAT_WAS_SENT
from tests.checking.history import Event, Record
from tests.checking.sample_events import (
    GROUP,
    aborted,
    doubtful,
    init_producer_id,
    placed,
    promises,
    read_committed,
    transaction,
)
from tests.checking.transactions import (
    ABORTS_ARE_NOT_SEEN,
    ALL_OR_NOTHING,
    COMMITS_ARE_SEEN,
    FENCED_PRODUCERS_ARE_REFUSED,
    MOVED_ONCE,
    NOTHING_UNDECIDED,
    OFFSETS_WITH_RECORDS,
    SEEN_ONCE,
    SEEN_RECORDS_STAY,
    STABLE_OFFSETS_GROW,
    FinalState,
    check_transactions,
)

A, B, C, D = placed(0, 0), placed(1, 0), placed(0, 1), placed(1, 1)
IN_0, IN_1 = Record(0, 0, 70), Record(0, 1, 71)


def found(history: list[Event], *output: Record) -> list[str]:
    return promises(check_transactions(history, FinalState(by_partition(*output))))


def by_partition(*records: Record) -> dict[int, list[Record]]:
    partitions: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        partitions[record.partition].append(record)
    return partitions


# ---- atomicity


def test_what_was_committed_and_is_seen_and_what_was_aborted_and_is_not_are_right() -> None:
    assert found([transaction("p", 1, 2, A, B), aborted("p", 3, 4, C, D)], A, B) == []


def test_a_committed_transaction_that_is_seen_in_one_partition_alone_is_found() -> None:
    assert found([transaction("p", 1, 2, A, B)], A) == [ALL_OR_NOTHING]


def test_a_committed_transaction_that_is_gone_is_found() -> None:
    assert found([transaction("p", 1, 2, A, B)]) == [COMMITS_ARE_SEEN]


def test_a_committed_record_at_another_offset_than_was_acknowledged_is_found() -> None:
    assert found([transaction("p", 1, 2, A)], Record(0, 5, A.value)) == [ALL_OR_NOTHING]


def test_of_a_transaction_in_doubt_all_is_right_and_none_and_a_part_is_found() -> None:
    history = [doubtful("p", 1, 2, A, B)]
    assert found(history) == []
    assert found(history, A, B) == []
    assert found(history, B) == [ALL_OR_NOTHING]


def test_a_record_that_is_there_twice_or_that_nobody_sent_is_found() -> None:
    assert found([transaction("p", 1, 2, A)], Record(0, 3, A.value), A) == [SEEN_ONCE]
    assert found([], A) == [ONLY_WHAT_WAS_SENT]


# ---- aborted and undecided records


def test_an_aborted_record_that_is_seen_in_the_end_is_found() -> None:
    assert found([aborted("p", 1, 2, A, B)], A) == [ABORTS_ARE_NOT_SEEN]


def test_an_aborted_record_that_was_read_once_is_found() -> None:
    assert ABORTS_ARE_NOT_SEEN in found([aborted("p", 1, 2, A), read_committed(3, A)])


def test_a_record_that_is_read_before_its_transaction_is_to_end_is_found() -> None:
    assert found([transaction("p", 1, 5, A), read_committed(3, A)], A) == [NOTHING_UNDECIDED]


def test_a_stable_offset_behind_an_open_transaction_is_found_although_nothing_was_read() -> None:
    assert found([transaction("p", 1, 5, A), read_committed(3, stable={0: 1})], A) == [NOTHING_UNDECIDED]
    assert found([transaction("p", 1, 5, A), read_committed(3, stable={0: 0})], A) == []


def test_a_stable_offset_behind_a_transaction_in_doubt_that_is_seen_in_the_end_is_found() -> None:
    history = [doubtful("p", 1, 5, Record(0, -1, A.value)), read_committed(3, stable={0: 1})]
    assert found(history, A) == [NOTHING_UNDECIDED]
    assert found(history) == []


def test_a_transaction_may_be_read_from_the_moment_on_in_which_its_end_was_asked_for() -> None:
    assert found([transaction("p", 1, 5, A, ending=2.0), read_committed(3, A)], A) == []


def test_a_transaction_that_was_left_open_may_have_been_aborted_at_any_time() -> None:
    assert found([aborted("p", 1, 9, A, ending=float("inf")), read_committed(5, stable={0: 2})]) == []


# ---- readers


def test_a_record_that_was_read_and_is_gone_in_the_end_is_found() -> None:
    assert SEEN_RECORDS_STAY in found([doubtful("p", 1, 2, A), read_committed(3, A)])


def test_a_last_stable_offset_that_goes_back_is_found() -> None:
    history = [read_committed(1, stable={0: 5}), read_committed(2, stable={0: 4})]
    assert found(history) == [STABLE_OFFSETS_GROW]


def test_of_two_reads_at_a_time_either_may_have_come_first() -> None:
    assert found([read_committed(1, stable={0: 5}, until=3), read_committed(2, stable={0: 4}, until=4)]) == []


# ---- loops that read, process and write


def moved(history: list[Event], committed: int | None, *output: Record) -> list[str]:
    source = {0: [IN_0, IN_1]}
    return promises(check_transactions(history, FinalState(by_partition(*output), source, {GROUP: {0: committed}})))


def test_inputs_before_the_committed_offset_that_were_moved_once_are_right() -> None:
    first = transaction("p", 1, 2, A, inputs=(IN_0,), group=GROUP)
    again = aborted("p", 3, 4, C, inputs=(IN_1,), group=GROUP)
    assert moved([first, again], 1, A) == []
    assert moved([first, again, transaction("q", 5, 6, B, inputs=(IN_1,), group=GROUP)], 2, A, B) == []
    assert moved([], None) == []


def test_an_input_that_was_moved_twice_is_found() -> None:
    history = [transaction(each, 1, 2, out, inputs=(IN_0,), group=GROUP) for each, out in (("p", A), ("q", B))]
    assert moved(history, 1, A, B) == [MOVED_ONCE]


def test_an_input_whose_offset_was_committed_without_its_record_is_found() -> None:
    history = [aborted("p", 1, 2, A, inputs=(IN_0,), group=GROUP)]
    assert moved(history, 1) == [OFFSETS_WITH_RECORDS]


def test_a_record_whose_input_was_not_committed_is_found() -> None:
    assert moved([transaction("p", 1, 2, A, inputs=(IN_0,), group=GROUP)], 0, A) == [OFFSETS_WITH_RECORDS]


# ---- fencing


def test_a_producer_that_nobody_has_fenced_may_go_on() -> None:
    assert found([init_producer_id("p", 0), transaction("p", 1, 2, A), transaction("p", 3, 4, B)], A, B) == []
    other = init_producer_id("q", 1, transactional_id="another")
    assert found([init_producer_id("p", 0), other, transaction("p", 2, 3, A)], A) == []


def test_a_fenced_producer_that_commits_is_found() -> None:
    history = [init_producer_id("p", 0), init_producer_id("q", 2), transaction("p", 1, 4, A)]
    assert found(history, A) == [FENCED_PRODUCERS_ARE_REFUSED]
    unknown = [init_producer_id("p", 0), init_producer_id("q", 2), doubtful("p", 1, 4, A)]
    assert found(unknown, A) == [FENCED_PRODUCERS_ARE_REFUSED]
    assert found(unknown) == []


def test_a_fenced_producer_whose_record_is_let_in_is_found() -> None:
    history = [init_producer_id("p", 0), init_producer_id("q", 2), aborted("p", 3, 4, A)]
    assert found(history) == [FENCED_PRODUCERS_ARE_REFUSED]
    refused = [init_producer_id("p", 0), init_producer_id("q", 2), aborted("p", 3, 4, Record(0, -1, A.value))]
    assert found(refused) == []


def test_what_was_asked_to_commit_before_the_other_producer_was_acknowledged_may_be_seen() -> None:
    history = [init_producer_id("p", 0), init_producer_id("q", 1.5, until=4), transaction("p", 1, 3, A)]
    assert found(history, A) == []


def test_a_fenced_producer_that_begins_anew_fences_the_other_one() -> None:
    history = [init_producer_id("p", 0), init_producer_id("q", 1), init_producer_id("p", 2), transaction("p", 3, 4, A)]
    assert found(history, A) == []
    assert found([*history, transaction("q", 5, 6, B)], A, B) == [FENCED_PRODUCERS_ARE_REFUSED]
