"""Reads Java's ``.properties`` format, that of ``server.properties``.

A key ends at the first ``=``, ``:`` or blank that is not escaped; ``#`` and ``!`` begin a comment line; a backslash at
the end of a line joins the next one to it, without that line's leading blanks; ``\\t \\n \\r \\f`` and ``\\uXXXX`` are
escapes, and a backslash before anything else is dropped. Each property has the number of its first line, so that an
error can name it.

One rule is stricter than Java's: a line without a key is an error, not a property with an empty name.

Source: java.util.Properties.load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_DIGITS = re.compile(r"[0-9A-Fa-f]{4}", re.ASCII)


class PropertiesError(ValueError):
    """The text is not of the format; the reason names the line."""


@attrs.frozen
class Property:
    """One key and its value, and the number of the line on which it begins, counted from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str, source: str = "properties") -> list[Property]:
    """Return all properties of ``text`` in order; a key may occur more than once.

    Raises:
        PropertiesError: an escape is malformed, or a line has no key. The text names ``source`` and the line.
    """
    return [_parse_line(line, number, source) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that holds a property, its continuations joined to it, with its number."""
    begun: int | None = None
    joined = ""
    for number, line in enumerate(_LINE_END.split(text), start=1):
        content = line.lstrip(_BLANKS)
        if begun is None:
            if not content or content[0] in "#!":
                continue
            begun, joined = number, ""
        if _ends_with_continuation(content):
            joined += content[:-1]
            continue
        yield begun, joined + content
        begun = None
    if begun is not None:
        # A backslash at the end of the text has no line to join. Java keeps the text before it.
        yield begun, joined


def _ends_with_continuation(line: str) -> bool:
    """Whether a line continues on the next: it ends with an odd number of backslashes, so the last is not escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_line(line: str, number: int, source: str) -> Property:
    end = _end_of_key(line)
    rest = line[end:].lstrip(_BLANKS)
    if rest and rest[0] in _SEPARATORS:
        rest = rest[1:].lstrip(_BLANKS)
    where = f"{source}:{number}"
    if not (key := _unescape(line[:end], where)):
        raise PropertiesError(f"{where}: there is no key before the value {rest!r}")
    return Property(key, _unescape(rest, where), number)


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in _SEPARATORS + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str, where: str) -> str:
    parts: list[str] = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        escaped = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if escaped == "u":
            if not (digits := _UNICODE_DIGITS.match(text, position)):
                raise PropertiesError(f"{where}: \\u must be followed by four hexadecimal digits")
            parts.append(chr(int(digits[0], 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    return _with_whole_characters("".join(parts), where)


def _with_whole_characters(text: str, where: str) -> str:
    """Join the two surrogates, each an escape, with which Java writes a character above 0xFFFF."""
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise PropertiesError(f"{where}: a \\u escape of a surrogate has no second one beside it") from None
