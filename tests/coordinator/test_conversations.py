"""The text format of conversations itself."""

from __future__ import annotations

import pytest

from tests.coordinator import conversations
from tests.coordinator.conversations import ConversationError

TEXT = """\
# A comment.

# Another.
say word=one
say word='two words'
----
one
two words

say word=three
----
(nothing)
"""


def echo(name: str, arguments: dict[str, str]) -> str:
    assert name == "say"
    return arguments["word"]


def test_a_conversation_is_written_as_it_was_read():
    assert conversations.parse(TEXT).text() == TEXT


def test_what_came_back_takes_the_place_of_what_was_expected(monkeypatch, tmp_path):
    path = tmp_path / "echo.txt"
    path.write_text(TEXT)
    monkeypatch.setenv(conversations.REWRITE_VARIABLE, "1")
    conversations.play(path, echo)
    assert path.read_text() == TEXT.replace("(nothing)", "three")


def test_a_difference_names_the_file_and_the_line(monkeypatch, tmp_path):
    monkeypatch.delenv(conversations.REWRITE_VARIABLE, raising=False)
    path = tmp_path / "echo.txt"
    path.write_text(TEXT)
    with pytest.raises(AssertionError, match=r"echo.txt:10: say word=three"):
        conversations.play(path, echo)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("----\nanswer\n", "line 1: no command"),
        ("say word=a\n\nsay word=b\n----\n", "line 2: ---- is missing"),
        ("say word=a\n", "line 1: ---- is missing"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_line(text, message):
    with pytest.raises(ConversationError, match=message):
        conversations.parse(text)


def test_an_argument_without_a_value_or_given_twice_is_refused():
    for line in ("say word", "say word=a word=b"):
        with pytest.raises(ConversationError):
            conversations.spoken(conversations.parse(f"{line}\n----\nx\n"), echo)
