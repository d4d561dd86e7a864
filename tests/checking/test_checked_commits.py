"""The checker of commits finds every offset that was lost, or went back by itself, and lets the others pass."""

from __future__ import annotations

from tests.checking.commits import COMMITS_STAY, check_commits
from tests.checking.history import Event, Outcome
from tests.checking.sample_events import assign, commit, doubtful_commit, fetch, poll, promises, revoke


def found(*history: Event) -> list[str]:
    return promises(check_commits(sorted(history, key=lambda each: each.invoked)))


def test_a_commit_that_is_found_again_is_right() -> None:
    assert found(commit("a", 1, {0: 5}, until=2), fetch(3, {0: 5}), commit("a", 4, {0: 7}), fetch(5, {0: 7})) == []


def test_a_lost_commit_is_found() -> None:
    assert found(commit("a", 1, {0: 5}, until=2), fetch(3, {0: None})) == [COMMITS_STAY]


def test_an_offset_that_goes_back_by_itself_is_found() -> None:
    assert found(commit("a", 1, {0: 5}), commit("a", 2, {0: 7}), fetch(3, {0: 5})) == [COMMITS_STAY]


def test_an_offset_that_a_member_took_back_is_right() -> None:
    assert found(commit("a", 1, {0: 7}), commit("b", 2, {0: 5}), fetch(3, {0: 5})) == []


def test_an_offset_that_nobody_committed_is_found() -> None:
    assert found(commit("a", 1, {0: 5}), fetch(3, {0: 6})) == [COMMITS_STAY]
    assert found(fetch(1, {0: 0})) == [COMMITS_STAY]


def test_what_happens_at_the_same_time_may_be_seen_either_way() -> None:
    assert found(commit("a", 1, {0: 5}), commit("a", 2, {0: 7}, until=4), fetch(3, {0: 5})) == []
    assert found(commit("a", 1, {0: 5}), commit("a", 2, {0: 7}, until=4), fetch(3, {0: 7})) == []


def test_a_commit_in_doubt_may_be_seen_or_not_but_not_be_forgotten_after_it_was_seen() -> None:
    doubtful = [commit("a", 1, {0: 5}), doubtful_commit("a", 2, {0: 7})]
    assert found(*doubtful, fetch(3, {0: 5}), fetch(4, {0: 7})) == []
    assert found(*doubtful, fetch(3, {0: 7}), fetch(4, {0: 5})) == [COMMITS_STAY]


def test_a_commit_that_was_never_sent_is_none() -> None:
    assert found(commit("a", 1, {0: 5}, outcome=Outcome.FAIL), fetch(3, {0: 5})) == [COMMITS_STAY]


def test_partitions_and_groups_are_apart() -> None:
    assert found(commit("a", 1, {0: 5, 1: 6}), fetch(2, {0: 5, 1: 6})) == []
    assert found(commit("a", 1, {0: 5, 1: 6}), fetch(2, {0: 6, 1: 6})) == [COMMITS_STAY]
    assert found(commit("a", 1, {0: 5}, group="other"), fetch(2, {0: 5})) == [COMMITS_STAY]


def test_a_member_that_begins_where_nothing_was_committed_any_more_is_found() -> None:
    """Its client asked for the offset between the assignment and the first record."""
    committed = [commit("a", 1, {0: 5}), commit("a", 2, {0: 7})]
    assert found(*committed, assign("b", 3, 0), poll("b", 4, 0, 7, 8)) == []
    assert found(*committed, assign("b", 3, 0), poll("b", 4, 0, 5, 6)) == [COMMITS_STAY]
    assert found(*committed, assign("b", 3, 0), poll("b", 4, 0, 0, 1)) == [COMMITS_STAY]
    assert found(*committed, assign("b", 1.5, 0), poll("b", 4, 0, 5, 6)) == []


def test_a_member_that_begins_at_the_beginning_found_nothing_or_zero() -> None:
    assert found(fetch(1, {0: None}), assign("b", 2, 0), poll("b", 3, 0, 0), fetch(4, {0: None})) == []
    assert found(commit("a", 1, {0: 0}), assign("b", 2, 0), poll("b", 3, 0, 0), fetch(4, {0: 0})) == []


def test_a_member_that_goes_on_where_it_stopped_tells_nothing() -> None:
    history = [assign("a", 1, 0), poll("a", 2, 0, 0, 1, 2), revoke("a", 3, 0), assign("a", 4, 0), poll("a", 5, 0, 3)]
    assert found(*history) == []
