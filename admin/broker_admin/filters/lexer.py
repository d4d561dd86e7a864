"""The tokens of a filter: names, literals, and operators.

String literals are those of CEL: single or double quotes, one of them or three, with escapes, or without them behind
``r``; behind ``b`` they are bytes. Whole numbers are decimal or hexadecimal and fit in 64 bits.

Source: the lexis of CEL's language definition.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

import attrs

from broker_admin.filters.errors import FilterSyntaxError
from broker_admin.filters.operations import MAX_INT, Value

MAX_FILTER_LENGTH = 4096
"""Characters of a filter. What is typed by hand is far shorter; it bounds the work of compiling and of each record."""

_TOKEN = re.compile(
    r"""
      (?P<space> [\ \t\r\n\f]+ | //[^\n]* )
    | (?P<double> [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<int> 0x[0-9a-fA-F]+ | [0-9]+ )
    | (?P<quoted> (?P<prefix>[rRbB]{0,2}) (?P<quote> \"{3} | '{3} | \" | ' ) )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<operator> && | \|\| | [=!<>]= | [-+*/%!<>?:.,()\[\]] )
    """,
    re.VERBOSE,
)

_ESCAPE = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\?\"'`])|[xX](?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
    r"|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8}))"
)

_PLAIN_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class TokenKind(enum.Enum):
    """What a token is; keywords are names, and literals of any type are one kind."""

    LITERAL = enum.auto()
    NAME = enum.auto()
    OPERATOR = enum.auto()
    END = enum.auto()


@attrs.frozen
class Token:
    """One token: its ``text`` as it stands there, the ``value`` of a literal, and where it begins."""

    kind: TokenKind
    text: str
    position: int
    value: Value = None


def tokens_of(text: str) -> list[Token]:
    """The tokens of ``text``; the last one is its end.

    Raises:
        FilterSyntaxError: it is too long, or something in it is no token.
    """
    if len(text) > MAX_FILTER_LENGTH:
        reason = f"a filter has at most {MAX_FILTER_LENGTH} characters, this one {len(text)}"
        raise FilterSyntaxError(reason, MAX_FILTER_LENGTH)
    return [*_tokens(text), Token(TokenKind.END, "", len(text))]


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterSyntaxError(_unknown_text(text[position]), position)
        found, end = match.group(), match.end()
        if match["quoted"]:
            token, end = _quoted(text, match)
            yield token
        elif match["name"]:
            yield Token(TokenKind.NAME, found, position)
        elif match["operator"]:
            yield Token(TokenKind.OPERATOR, found, position)
        elif not match["space"]:
            yield _number(text, match)
        position = end


def _unknown_text(character: str) -> str:
    advice = {"=": "; equality is ==", "&": "; and is &&", "|": "; or is ||"}.get(character, "")
    return f"{character!r} is no part of an expression{advice}"


def _number(text: str, match: re.Match[str]) -> Token:
    found, end = match.group(), match.end()
    # ``1u``, ``5px``, ``1.2.3``: a number that ends where a word or another number begins.
    if end < len(text) and (text[end].isalnum() or text[end] == "_"):
        raise FilterSyntaxError(f"a number ends at {text[end]!r}", end)
    if match["double"]:
        return Token(TokenKind.LITERAL, found, match.start(), float(found))
    number = int(found, 16 if found.startswith("0x") else 10)
    # One more is allowed behind a minus sign, which the parser sees.
    if number > MAX_INT + 1:
        raise FilterSyntaxError(f"{found} does not fit in 64 bits", match.start())
    return Token(TokenKind.LITERAL, found, match.start(), number)


def _quoted(text: str, match: re.Match[str]) -> tuple[Token, int]:
    """The literal that begins with ``match``, and where it ends.

    Raises:
        FilterSyntaxError: its end is missing, or an escape in it does not exist.
    """
    prefix, quote, start = match["prefix"].lower(), match["quote"], match.start()
    if prefix in ("rr", "bb"):
        raise FilterSyntaxError(f"no string begins with {match['prefix']}", start)
    end = match.end()
    while end < len(text) and not text.startswith(quote, end):
        if text[end] == "\n" and len(quote) == 1:
            break
        end += 2 if text[end] == "\\" and "r" not in prefix else 1
    if not text.startswith(quote, end):
        raise FilterSyntaxError(f"the string has no closing {quote}", start)
    content = text[match.end() : end]
    value: Value = content
    if "b" in prefix:
        value = content.encode("utf-8", "surrogatepass") if "r" in prefix else _bytes(content, match.end())
    elif "r" not in prefix:
        value = "".join(str(piece) for piece in _pieces(content, match.end(), for_bytes=False))
    end += len(quote)
    return Token(TokenKind.LITERAL, text[start:end], start, value), end


def _bytes(content: str, position: int) -> bytes:
    pieces = _pieces(content, position, for_bytes=True)
    return b"".join(piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass") for piece in pieces)


def _pieces(content: str, position: int, *, for_bytes: bool) -> Iterator[str | bytes]:
    """The content of a literal, escapes replaced: in a string numbers are code points, in bytes they are octets."""
    at = 0
    while (slash := content.find("\\", at)) >= 0:
        yield content[at:slash]
        match = _ESCAPE.match(content, slash)
        if match is None or (for_bytes and (match["u4"] or match["u8"])):
            raise FilterSyntaxError(f"{content[slash : slash + 2]} is no escape; a backslash is \\\\", position + slash)
        yield _escaped(match, position + slash, for_bytes=for_bytes)
        at = match.end()
    yield content[at:]


def _escaped(match: re.Match[str], position: int, *, for_bytes: bool) -> str | bytes:
    if plain := match["plain"]:
        return _PLAIN_ESCAPES.get(plain, plain)
    code = int(match["octal"], 8) if match["octal"] else int(match["hex"] or match["u4"] or match["u8"], 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise FilterSyntaxError(f"{match.group()} is no character", position)
    return bytes([code]) if for_bytes else chr(code)
