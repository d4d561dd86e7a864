"""Writing Python source line by line, and turning it into a function that tracebacks can show.

The readers and writers of messages are plain functions, written by ``emit_reader`` and ``emit_writer``. This is their
common part: lines and their indentation, the names the function will find as globals, precompiled ``struct`` calls, and
the base of what writes the lines.
"""

from __future__ import annotations

import contextlib
import linecache
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final

TURN_ELEMENTS: Final = 100
"""Elements of arrays between two turns that a function in turns gives: each takes one to five microseconds."""

TURN_BYTES: Final = 256 * 1024
"""Bytes that a function in turns copies between two of them: some tens of microseconds, half a millisecond where they
are text in other letters than ASCII."""

BYTES_PER_ELEMENT: Final = TURN_BYTES // TURN_ELEMENTS
"""Of a string or of bytes that count as much as an element."""

LEGACY_LENGTH_CODES: Final = {"string": "h", "bytes": "i", "records": "i"}
"""How ``struct`` writes the lengths of versions that are not flexible."""

_INDENT: Final = "    "
_LITERAL_TYPES: Final = (int, str, bytes, bool, float, type(None))

_structs: Final[dict[str, struct.Struct]] = {}
"""Compiled formats, shared by all functions."""


class Source:
    """The text of one function as it grows, and the globals it will see.

    ``in_turns`` makes it a generator: it yields None whenever ``turn`` has counted ``TURN_ELEMENTS``. In the plain form
    of the function ``begin_turns`` and ``turn`` add nothing.
    """

    def __init__(self, *, in_turns: bool = False) -> None:
        self.in_turns = in_turns
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self._depth = 0
        self._numbers = 0

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self.lines.append(_INDENT * self._depth + text)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a header line; what is added inside stands under it."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    @property
    def suffix(self) -> str:
        """What tells the name of the form in turns from that of the plain one."""
        return " in turns" if self.in_turns else ""

    def begin_turns(self) -> None:
        """Begin to count elements."""
        if self.in_turns:
            self.line(f"left = {TURN_ELEMENTS}")
            # Or a message without arrays would have a function that is no generator.
            with self.block("if not left:"):
                self.line("yield")

    def turn(self, elements: str = "1", before: str | None = None) -> None:
        """Count ``elements``, an expression, and yield when there were enough, after the line ``before``."""
        if self.in_turns:
            self.line(f"left -= {elements}")
            with self.block("if left <= 0:"):
                self.line(f"left = {TURN_ELEMENTS}")
                if before is not None:
                    self.line(before)
                self.line("yield")

    def turn_bytes(self, count: str) -> None:
        """Count that ``count`` bytes, an expression, were copied; the next ``turn`` yields when they were enough."""
        if self.in_turns:
            self.line(f"left -= {count} // {BYTES_PER_ELEMENT}")

    def number(self) -> int:
        """Return a number not given before, to keep local names apart."""
        self._numbers += 1
        return self._numbers

    def constant(self, hint: str, value: Any) -> str:
        """Return an expression for ``value``: itself if it is simple, else the name of a global."""
        if type(value) in _LITERAL_TYPES:
            return repr(value)
        name = hint
        while self.globals.setdefault(name, value) is not value:
            name = f"{hint}_{self.number()}"
        return name

    def unpack(self, codes: str) -> str:
        """Return the name of the function that unpacks these ``struct`` codes."""
        name = f"unpack_{_identifier(codes)}"
        self.globals[name] = _compiled(codes).unpack_from
        return name

    def pack(self, codes: str) -> str:
        """Return the name of the function that packs these ``struct`` codes."""
        name = f"pack_{_identifier(codes)}"
        self.globals[name] = _compiled(codes).pack
        return name

    def refusal(self, error: type[Exception], condition: str, reason: str) -> None:
        """Add lines that raise ``error`` on a condition; the reason may name local variables in braces."""
        self.globals[error.__name__] = error
        with self.block(f"if {condition}:"):
            self.line(f"raise {error.__name__}({'f' if '{' in reason else ''}{reason!r})")

    def function(self, name: str, filename: str) -> Callable[..., Any]:
        """Compile what was written, and let tracebacks and debuggers see it under ``filename``."""
        text = "\n".join(self.lines) + "\n"
        exec(compile(text, filename, "exec"), self.globals)
        # An entry without a time of change is one that linecache does not look for on the disk.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        function: Callable[..., Any] = self.globals[name]
        return function


class Emitter(ABC):
    """What writes the lines of a reader or a writer of one version.

    Values of fixed size wait in ``_fixed``, each with its ``struct`` code, for their neighbours: a call of ``struct``
    for a whole run of fields costs little more than one for a single field.
    """

    error: type[Exception]
    """What the lines raise."""

    def __init__(self, version: int, flexible: bool, *, in_turns: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source(in_turns=in_turns)
        self._fixed: list[tuple[str, str]] = []

    @abstractmethod
    def flush(self) -> None:
        """Write the line for the values that are waiting."""

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A block of lines: no value waits across its borders."""
        self.flush()
        with self.source.block(header):
            yield
            self.flush()

    def refuse(self, condition: str, reason: str) -> None:
        """Raise ``error`` on a condition; the reason may name local variables in braces."""
        self.source.refusal(self.error, condition, reason)


def _compiled(codes: str) -> struct.Struct:
    return _structs.setdefault(codes, struct.Struct(">" + codes))


def _identifier(codes: str) -> str:
    return codes.replace("?", "t")
