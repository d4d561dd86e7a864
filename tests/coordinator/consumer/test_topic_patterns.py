"""Regular expressions that consumers subscribe to: their syntax, their limits, and the search for topics."""

from __future__ import annotations

import time

import pytest

from trio_broker.coordinator.consumer.topic_patterns import (
    COST_PER_MATCH,
    COST_PER_STEP,
    MAX_PATTERN_LENGTH,
    InvalidPattern,
    PatternResolution,
    check_pattern,
)


def matched(pattern: str, *topic_names: str) -> set[str]:
    resolution = PatternResolution([pattern], topic_names, 1234)
    while not resolution.step():
        pass
    [resolved] = resolution.result().values()
    assert resolved.timestamp_ms == 1234
    return set(resolved.topics)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("foo", {"foo"}),
        ("foo.*", {"foo", "foo-1", "foo.bar"}),
        (".*", {"foo", "foo-1", "foo.bar", "barfoo"}),
        (r"foo\..+", {"foo.bar"}),
        ("foo|barfoo", {"foo", "barfoo"}),
        ("^foo$", {"foo"}),
        ("(?i)FOO", {"foo"}),
        (r"\Qfoo.bar\E", {"foo.bar"}),
        ("[a-f]+", set()),
        (r"foo-\d", {"foo-1"}),
        ("oo", set()),
        ("", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern, expected):
    assert matched(pattern, "foo", "foo-1", "foo.bar", "barfoo") == expected


def test_names_may_be_anything_that_a_topic_is_called():
    assert matched("[äöü_]+", "äöü", "_", "a") == {"äöü", "_"}


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "*", "(?=look)", r"(a)\1", "\\", "(?P<n", "a{5000}"])
def test_what_is_no_re2_expression_is_refused_with_a_reason(pattern):
    with pytest.raises(InvalidPattern, match=r".+"):
        check_pattern(pattern)


def test_a_pattern_that_is_too_long_is_refused():
    check_pattern("a" * MAX_PATTERN_LENGTH)
    with pytest.raises(InvalidPattern, match="characters"):
        check_pattern("a" * (MAX_PATTERN_LENGTH + 1))


def test_a_pattern_that_would_take_too_much_memory_is_refused():
    with pytest.raises(InvalidPattern):
        check_pattern("((a{100}){100}){10}" * 50)


def test_a_pattern_that_others_would_think_about_for_ever_is_matched_at_once():
    began = time.process_time()
    assert matched("(a+)+b", "a" * 249) == set()
    assert matched("(a|aa)*c", "a" * 249) == set()
    assert time.process_time() - began < 1


def test_topics_that_the_member_may_not_see_are_no_matches():
    resolution = PatternResolution(["o.*"], ["orders", "others"], 0, lambda name: name != "others")
    while not resolution.step():
        pass
    assert resolution.result()["o.*"].topics == {"orders"}


def steps_of(resolution: PatternResolution, cost: int = COST_PER_STEP) -> int:
    steps = 1
    while not resolution.step(cost):
        steps += 1
    return steps


def test_a_search_goes_in_steps_and_says_when_it_is_done():
    resolution = PatternResolution(["a.*", ".*"], [f"a{number}" for number in range(10)], 0)
    assert steps_of(resolution, 4 * COST_PER_MATCH) in range(7, 10), "four names or fewer in a step, or one pattern"
    assert [len(resolved.topics) for resolved in resolution.result().values()] == [10, 10]


def test_a_common_pattern_is_matched_with_hundreds_of_names_in_a_step():
    assert steps_of(PatternResolution(["orders-.*"], [f"orders-{number:04}" for number in range(500)], 0)) == 1


def test_many_patterns_are_not_compiled_all_in_one_step():
    assert steps_of(PatternResolution([f"a{number}" for number in range(100)], [], 0)) >= 20


def test_a_pattern_that_takes_milliseconds_for_each_long_name_gives_others_their_turn_after_each():
    names = ["ab" * 124 + str(number) for number in range(9)]
    assert steps_of(PatternResolution(["|".join(f"(?:[ab]?){{1000}}{end}" for end in range(3))], names, 0)) >= 9


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [(r"\pL" * 101, "Unicode classes"), ("|".join(f".*a.{{{gap}}}b.*" for gap in range(100)), "instructions")],
)
def test_a_pattern_that_would_take_long_to_read_or_to_match_is_refused(pattern, reason):
    with pytest.raises(InvalidPattern, match=reason):
        check_pattern(pattern)


def test_an_alternation_of_a_hundred_long_names_is_fine():
    check_pattern(
        "|".join(f"some.service-with.a-long-name.and-more-of-it.{number:04}-orders\\.v1" for number in range(100))
    )


def test_a_search_among_no_topics_is_done_at_once():
    assert PatternResolution([".*"], [], 0).step()


def test_a_pattern_from_the_log_that_cannot_be_used_matches_nothing():
    assert matched("(?=look)", "look") == set()
