r"""Separators as they are written on a command line: ``\n``, ``\t``, ``\0``, ``\x1f``, ``\\``, and plain text.

Source: kcat's ``-D`` and ``-K``.
"""

from __future__ import annotations

import re
from typing import Final

import click

ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)?", re.DOTALL)
NAMED: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""Return the bytes that a text with escapes stands for.

    Raises:
        click.BadParameter: an escape is none of those that there are.
    """
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
    """Return what ``unescape`` returns, which must not be empty.

    Raises:
        click.BadParameter: it is, or has an escape that does not exist.
    """
    data = unescape(text)
    if not data:
        raise click.BadParameter("it is empty")
    return data
