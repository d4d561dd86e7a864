"""The checker of owners finds every partition that has two, and lets the others pass."""

from __future__ import annotations

from tests.checking.history import Event, Op
from tests.checking.ownership import (
    NO_COMMIT_OF_AN_OLD_GENERATION,
    ONE_OWNER_AT_A_TIME,
    ONE_OWNER_PER_GENERATION,
    check_ownership,
)
from tests.checking.sample_events import GROUP, assign, commit, doubtful_commit, event, lost, promises, revoke


def found(*history: Event, classic: bool = True) -> list[str]:
    groups = frozenset({GROUP}) if classic else frozenset()
    return promises(check_ownership(sorted(history, key=lambda each: each.invoked), generations_of=groups))


# --- by generation ---


def test_a_partition_of_two_members_in_one_generation_is_found_even_when_the_times_do_not_overlap() -> None:
    history = [assign("a", 1, 0, generation=5), revoke("a", 2, 0), assign("b", 3, 0, generation=5)]
    assert found(*history) == [ONE_OWNER_PER_GENERATION]


def test_a_commit_shows_an_owner_who_kept_a_partition_without_a_word() -> None:
    kept = [assign("a", 1, 0, generation=4), assign("a", 2, generation=5), commit("a", 2, {0: 9}, generation=5)]
    assert ONE_OWNER_PER_GENERATION in found(*kept, assign("b", 3, 0, generation=5))


def test_a_commit_before_the_assignment_of_its_generation_shows_no_owner() -> None:
    """The coordinator was restarted before generation 5 was written, and the member did not come back."""
    history = [assign("a", 1, 0, generation=4), commit("a", 2, {0: 9}, generation=5), assign("b", 9, 0, generation=5)]
    assert found(*history) == []


def test_another_partition_another_generation_or_another_group_is_no_conflict() -> None:
    assert found(assign("a", 1, 0, generation=5), assign("b", 1, 1, generation=5)) == []
    assert found(assign("a", 1, 0, generation=5), revoke("a", 2, 0), assign("b", 3, 0, generation=6)) == []
    assert found(assign("a", 1, 0, generation=5), assign("b", 1, 0, generation=5, group="other")) == []


def test_member_epochs_are_no_generations() -> None:
    history = [assign("a", 1, 0, generation=5), revoke("a", 2, 0), assign("b", 3, 0, generation=5)]
    assert found(*history, classic=False) == []


def test_a_commit_that_ended_in_doubt_or_in_no_known_generation_shows_nothing() -> None:
    history = [
        assign("a", 1, 0, generation=5),
        doubtful_commit("b", 2, {0: 3}),
        commit("b", 2, {0: 3}, generation=None),
    ]
    assert found(*history) == []


def test_a_commit_of_an_old_generation_is_found_once_the_new_one_was_assigned_to_somebody() -> None:
    old = [assign("a", 1, 0, generation=5), assign("b", 3, 0, generation=6), commit("a", 4, {0: 9}, generation=5)]
    assert NO_COMMIT_OF_AN_OLD_GENERATION in found(*old)
    early = [assign("a", 1, 0, generation=5), commit("a", 2, {0: 9}, generation=5), assign("b", 3, 0, generation=6)]
    assert found(*early) == []


def test_a_commit_of_an_old_generation_that_was_begun_before_the_new_one_is_no_proof() -> None:
    history = [
        assign("a", 1, 0, generation=5),
        commit("a", 2, {0: 9}, generation=5, until=4),
        assign("b", 3, 0, generation=6),
    ]
    assert found(*history) == []


# --- by time ---


def test_a_partition_given_away_before_its_owner_had_let_go_is_found() -> None:
    assert found(assign("a", 1, 0), revoke("a", 3, 0, until=5), assign("b", 4, 0), classic=False) == [
        ONE_OWNER_AT_A_TIME
    ]


def test_a_partition_given_away_after_its_owner_had_let_go_is_right() -> None:
    assert found(assign("a", 1, 0), revoke("a", 3, 0, until=5), assign("b", 6, 0), classic=False) == []


def test_one_that_is_given_away_while_its_owner_goes_on_committing_is_found() -> None:
    assert found(assign("a", 1, 0), commit("a", 4, {0: 5}), assign("b", 3, 0), classic=False) == [ONE_OWNER_AT_A_TIME]


def test_one_that_was_lost_or_killed_is_free_from_the_last_proof_on() -> None:
    proved = [assign("a", 1, 0), commit("a", 2, {0: 5})]
    assert found(*proved, assign("b", 3, 0), lost("a", 4, 0), classic=False) == []
    assert found(*proved, assign("b", 3, 0), event(Op.CLOSE, "a", 4), classic=False) == []
    assert found(*proved, assign("b", 3, 0), classic=False) == []


def test_one_whose_owner_was_held_up_is_free_from_the_last_proof_on() -> None:
    """It may have been removed from the group meanwhile, without knowing."""
    asleep = [assign("a", 1, 0), commit("a", 2, {0: 5}), event(Op.STALL, "a", 2.5, 5), revoke("a", 6, 0)]
    assert found(*asleep, assign("b", 4, 0), classic=False) == []
    assert found(*asleep, assign("b", 1.5, 0), classic=False) == [ONE_OWNER_AT_A_TIME]


def test_a_commit_in_the_revoke_callback_proves_what_the_callback_alone_would_not() -> None:
    asleep = [assign("a", 1, 0), event(Op.STALL, "a", 1.5, 5), revoke("a", 6, 0, until=8)]
    assert found(*asleep, assign("b", 6.5, 0), classic=False) == []
    proved = [*asleep, commit("a", 7, {0: 5}, until=7.5)]
    assert found(*proved, assign("b", 6.5, 0), classic=False) == [ONE_OWNER_AT_A_TIME]


def test_a_revocation_on_the_way_out_proves_nothing() -> None:
    """The group may have done without the member before it said that it leaves."""
    history = [assign("a", 1, 0), event(Op.CLOSE, "a", 3, 6), revoke("a", 3, 0, until=5), assign("b", 4, 0)]
    assert found(*history, classic=False) == []


def test_a_revocation_by_a_member_that_had_already_joined_the_next_generation_proves_nothing() -> None:
    history = [assign("a", 1, 0), revoke("a", 3, 0, until=5, generation=None), assign("b", 4, 0)]
    assert found(*history, classic=False) == []


def test_a_long_ownership_is_not_forgotten_behind_a_short_one() -> None:
    history = [
        assign("a", 1, 0),
        commit("a", 9, {0: 9}),
        assign("b", 2, 0),
        revoke("b", 3, 0),
        assign("c", 5, 0),
        revoke("c", 6, 0),
    ]
    assert found(*history, classic=False) == [ONE_OWNER_AT_A_TIME, ONE_OWNER_AT_A_TIME]


def test_one_member_may_be_given_again_what_it_has() -> None:
    assert found(assign("a", 1, 0, generation=1), assign("a", 2, 0, 1, generation=2), revoke("a", 3, 0, 1)) == []
