"""Reading Java's properties format."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.common.properties import PropertiesError, parse_properties


def load_properties(text: str) -> dict[str, str]:
    """Return the properties of ``text``; if a key occurs more than once, its last value counts, as in Java."""
    return {item.key: item.value for item in parse_properties(text)}


@pytest.mark.parametrize(
    "line",
    ["num.io.threads=4", "num.io.threads = 4", "num.io.threads:4", "num.io.threads 4", "\t num.io.threads\t:  4"],
)
def test_key_and_value_are_parted_by_equals_sign_colon_or_blanks(line):
    assert load_properties(line) == {"num.io.threads": "4"}


def test_only_the_first_separator_parts():
    assert load_properties("listeners=PLAINTEXT://:9092,B://b:1=2") == {"listeners": "PLAINTEXT://:9092,B://b:1=2"}


def test_comments_and_blank_lines_are_skipped():
    assert load_properties("# one\n  ! two\n\n   \t\na=1\n") == {"a": "1"}


def test_a_sign_of_comment_inside_a_line_is_part_of_the_value():
    assert load_properties("a=1 # not a comment") == {"a": "1 # not a comment"}


def test_a_backslash_joins_the_next_line_without_its_leading_blanks():
    assert load_properties("listeners=A://:1,\\\n    B://:2,\\\n\tC://:3\nb=2") == {
        "listeners": "A://:1,B://:2,C://:3",
        "b": "2",
    }


def test_a_joined_line_is_never_a_comment():
    assert load_properties("a=1\\\n#2") == {"a": "1#2"}


def test_an_escaped_backslash_does_not_join():
    assert load_properties("a=C:\\\\\nb=2") == {"a": "C:\\", "b": "2"}


def test_a_backslash_at_the_end_of_the_text_joins_nothing():
    assert load_properties("a=1\\") == {"a": "1"}


def test_escapes_stand_for_their_characters_in_keys_and_values():
    assert load_properties(r"a\ key\==tab\tand\u00e9and\q") == {"a key=": "tab\tandéandq"}


def test_a_key_without_a_value_has_an_empty_one():
    assert load_properties("a\nb=\nc:") == {"a": "", "b": "", "c": ""}


def test_trailing_blanks_belong_to_the_value():
    assert load_properties("a=1  ") == {"a": "1  "}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_three_line_ends_are_known(end):
    assert load_properties(f"a=1{end}b=2{end}") == {"a": "1", "b": "2"}


def test_the_last_of_two_equal_keys_counts():
    assert load_properties("a=1\na=2") == {"a": "2"}


def test_a_property_knows_the_line_it_begins_on():
    items = parse_properties("# comment\n\na=1,\\\n  2\nb=3")
    assert [(item.key, item.line) for item in items] == [("a", 3), ("b", 5)]


def test_a_malformed_escape_is_reported_with_its_line():
    with pytest.raises(PropertiesError, match=r"server\.properties:2: .u must be followed"):
        parse_properties("a=1\nb=\\u12", "server.properties")


def test_half_a_character_is_refused():
    with pytest.raises(PropertiesError, match=r"^properties:1: a .* escape of a surrogate has no second one"):
        parse_properties("a=\\ud800")


def test_a_line_without_a_key_is_refused():
    with pytest.raises(PropertiesError, match="properties:1: there is no key before the value 'x'"):
        parse_properties("=x")


@given(st.text(alphabet="ab#!=: \t\f\\u00e9\r\n", max_size=60))
def test_any_text_is_read_line_by_line_or_refused(text):
    with contextlib.suppress(PropertiesError):
        items = parse_properties(text)
        assert all(item.key for item in items)
        assert [item.line for item in items] == sorted({item.line for item in items})


@given(st.text(min_size=1), st.text())
def test_what_is_escaped_in_full_comes_back(key, value):
    def escaped(text):
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    assert load_properties(f"{escaped(key)}={escaped(value)}") == {key: value}
