r"""Parses separators on a command line: plain text with the escapes ``\n``, ``\r``, ``\t``, ``\0``, ``\x1f``, ``\\``.

Source: kcat's ``-D`` and ``-K``.
"""

from __future__ import annotations

import re
from typing import Final

import click

ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)?", re.DOTALL)
NAMED: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""Return the bytes for a text with escapes.

    Raises:
        click.BadParameter: an escape does not exist.
    """
    # ``surrogateescape``: an argument with bytes that are not UTF-8 gives the same bytes again.
    out = bytearray()
    position = 0
    for found in ESCAPE.finditer(text):
        out += text[position : found.start()].encode("utf-8", "surrogateescape")
        out += _escaped(found[1] or "")
        position = found.end()
    return bytes(out + text[position:].encode("utf-8", "surrogateescape"))


def _escaped(name: str) -> bytes:
    if len(name) == 3:
        return bytes.fromhex(name[1:])
    if name not in NAMED:
        raise click.BadParameter(rf"\{name} is no escape; there are \n, \r, \t, \0, \xNN and \\")
    return NAMED[name]


def separator(text: str) -> bytes:
    """Return the bytes for a separator, which may have escapes.

    Raises:
        click.BadParameter: the separator is empty, or an escape does not exist.
    """
    data = unescape(text)
    if not data:
        raise click.BadParameter("it is empty")
    return data
