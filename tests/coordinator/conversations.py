"""Conversations: tests of state machines as text that people read, and that a flag rewrites for review as a diff.

A conversation is a file of steps. A step is one or more commands, a line of four dashes, and what comes back::

    # Comments stand before the commands, and stay when the file is rewritten.
    join member=a session_timeout_ms=10000
    ----
    MEMBER_ID_REQUIRED a-1
    state: Empty

    wait ms=3000
    ...

A command is a word and ``name=value`` arguments, split as a shell would, so that quotes may hold blanks. What comes
back is whatever the driver's text for each command, one after the other, says; it ends at an empty line, so a driver's
text has none. ``(nothing)`` stands for no text at all.

With the environment variable ``REWRITE_CONVERSATIONS=1`` a file that differs is rewritten to what came back, and the
test passes: the difference is then for a person to judge.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import attrs

FOLDER = Path(__file__).parent / "conversations"
RULE = "----"
NOTHING = "(nothing)"
REWRITE_VARIABLE = "REWRITE_CONVERSATIONS"

Driver = Callable[[str, dict[str, str]], str]
"""Does one command with its arguments, and says what came of it."""


class ConversationError(Exception):
    """The text is not a conversation; the message names the line."""


@attrs.frozen
class Command:
    text: str
    line_number: int

    def name_and_arguments(self) -> tuple[str, dict[str, str]]:
        name, *words = shlex.split(self.text)
        arguments: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key in arguments:
                raise ConversationError(f"line {self.line_number}: {word!r} is no argument, or comes twice")
            arguments[key] = value
        return name, arguments


@attrs.frozen
class Step:
    comments: tuple[str, ...]
    """Comment lines and the empty lines between them, as written."""
    commands: tuple[Command, ...]
    expected: str


@attrs.frozen
class Conversation:
    steps: tuple[Step, ...]
    closing_comments: tuple[str, ...] = ()

    def text(self) -> str:
        parts = [
            "\n".join([*step.comments, *(command.text for command in step.commands), RULE, step.expected]) + "\n"
            for step in self.steps
        ]
        if self.closing_comments:
            parts.append("\n".join(self.closing_comments) + "\n")
        return "\n".join(parts)


def files(pattern: str) -> list[Path]:
    """The conversations whose file name matches ``pattern``, at least one; ``@pytest.mark.parametrize`` takes them."""
    found = sorted(FOLDER.glob(pattern))
    assert found, f"no conversation matches {pattern}"
    return found


def play(path: Path, driver: Driver) -> None:
    """Speak every command of the file to ``driver``, and assert that what comes back is what the file says.

    Raises:
        ConversationError: the file is not a conversation.
    """
    expected = parse(path.read_text())
    actual = spoken(expected, driver)
    if os.environ.get(REWRITE_VARIABLE) == "1":
        if actual.text() != path.read_text():
            path.write_text(actual.text())
        return
    for expected_step, actual_step in zip(expected.steps, actual.steps, strict=True):
        assert actual_step.expected == expected_step.expected, (
            f"{path.name}:{expected_step.commands[0].line_number}: "
            + "; ".join(command.text for command in expected_step.commands)
        )


def spoken(conversation: Conversation, driver: Driver) -> Conversation:
    """The same conversation with what the driver really answers."""
    return attrs.evolve(
        conversation,
        steps=tuple(attrs.evolve(step, expected=_speak(step, driver)) for step in conversation.steps),
    )


def _speak(step: Step, driver: Driver) -> str:
    said = []
    for command in step.commands:
        name, arguments = command.name_and_arguments()
        text = driver(name, arguments).strip("\n")
        assert "\n\n" not in text, f"line {command.line_number}: an empty line would end the step: {text!r}"
        if text:
            said.append(text)
    return "\n".join(said) or NOTHING


def parse(text: str) -> Conversation:
    """Read a conversation.

    Raises:
        ConversationError: a command without a rule, or a rule without a command.
    """
    steps: list[Step] = []
    comments: list[str] = []
    commands: list[Command] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for line_number, line in lines:
        if line == RULE:
            if not commands:
                raise ConversationError(f"line {line_number}: no command before {RULE}")
            expected: list[str] = []
            for _, said in lines:
                if not said:
                    break
                expected.append(said)
            steps.append(Step(_trimmed(comments), tuple(commands), "\n".join(expected)))
            comments, commands = [], []
        elif commands and (not line or line.startswith("#")):
            raise ConversationError(f"line {line_number}: {RULE} is missing after {commands[-1].text!r}")
        elif not line or line.startswith("#"):
            comments.append(line)
        else:
            commands.append(Command(line, line_number))
    if commands:
        raise ConversationError(f"line {commands[-1].line_number}: {RULE} is missing after the last command")
    return Conversation(tuple(steps), _trimmed(comments))


def _trimmed(comments: list[str]) -> tuple[str, ...]:
    """Without empty lines at the beginning and the end: those between steps are written anyway."""
    return tuple("\n".join(comments).strip("\n").split("\n")) if any(comments) else ()
