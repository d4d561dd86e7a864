"""What one option of a job is, and how options are read from what a user wrote.

Options are declared once, as data (``read_option_table``, ``kafka_settings``): reading, hints for misspelt names and
``docs/spark-options.md`` come from the same declaration. Names are compared without regard to case, as Spark does; it
hands them over in lower case.

Values follow Scala's rules where Spark's Kafka source uses them (``toBoolean``, ``toInt``) and Spark's for durations,
with spaces around a value allowed everywhere.

Source: JavaUtils.timeStringAs for durations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import attrs

from trio_broker.spark.errors import OptionError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=Enum)

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

MILLISECONDS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
"""How long the units are that Spark knows; a number without one is milliseconds."""

CLOSE: Final = 0.75
"""How alike a wrong name and a right one are, out of 1, for one to be taken for the other."""

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)", re.ASCII)


class Mode(Enum):
    """The kind of query a job is."""

    BATCH = "batch"
    STREAM = "stream"


BOTH: Final = frozenset(Mode)


@attrs.frozen(eq=False)
class Option(Generic[T_co]):
    """One option. Compared by identity, since each is declared once.

    ``parse`` raises ``ValueError`` with the reason. ``default_text`` is what the documentation says where the default
    is no plain value, and ``difference`` how the option differs from the one in Spark's Kafka source.
    """

    name: str
    parse: Callable[[str], T_co]
    default: T_co | None
    meaning: str
    form: str = "text"
    modes: frozenset[Mode] = BOTH
    default_text: str | None = None
    difference: str = ""


class GivenOptions:
    """The options of one job, as they were given."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        self._spellings: dict[str, str] = {}
        for name, value in options.items():
            key = name.lower()
            if key in self._values:
                raise OptionError(name, f"is given twice, also as {self._spellings[key]!r}")
            self._values[key] = value
            self._spellings[key] = name

    def __contains__(self, option: Option[Any]) -> bool:
        return option.name.lower() in self._values

    def names(self) -> list[str]:
        """Return all names, in lower case."""
        return list(self._values)

    def text(self, option: Option[Any]) -> str:
        """Return what was written for ``option``, which is given."""
        return self._values[option.name.lower()]

    def read(self, option: Option[T]) -> T | None:
        """Return the value of ``option``, or its default.

        Raises:
            OptionError: what was written means nothing.
        """
        if option not in self:
            return option.default
        try:
            return option.parse(self.text(option).strip())
        except ValueError as error:
            raise OptionError(self.spelling(option.name), str(error)) from None

    def read_required(self, option: Option[T]) -> T:
        """Return the value of an ``option`` that has a default."""
        value = self.read(option)
        assert value is not None, f"{option.name} has no default"
        return value

    def spelling(self, name: str) -> str:
        """Return how the user wrote ``name``; what is all lower case may be Spark's doing, so the usual form wins."""
        given = self._spellings.get(name.lower(), name)
        return name if given.islower() else given

    def refuse(self, option: Option[Any], reason: str) -> OptionError:
        """Return the error that says why ``option`` is refused."""
        return OptionError(self.spelling(option.name), reason)


def hint(name: str, known: Iterable[str]) -> str:
    """Return what a misspelt ``name`` may have meant, as the end of a sentence, or nothing."""
    spellings = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), spellings, n=1, cutoff=CLOSE)
    return f"; did you mean {spellings[close[0]]!r}?" if close else ""


def parse_text(text: str) -> str:
    """Return ``text``, which must not be empty."""
    if not text:
        raise ValueError("is empty")
    return text


def parse_boolean(text: str) -> bool:
    """Read true or false, in any case."""
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_long(text: str) -> int:
    """Read a whole number of 64 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    if not -LONG_MAX - 1 <= (number := int(text)) <= LONG_MAX:
        raise ValueError(f"{text} needs more than 64 bits")
    return number


def whole_number(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """Return the reader of a whole number between the two, inclusive."""

    def parse(text: str) -> int:
        number = parse_long(text)
        if number < minimum:
            raise ValueError(f"{text} is too small; the least is {minimum}")
        if number > maximum:
            raise ValueError(f"{text} is too large; the most is {maximum}")
        return number

    return parse


def parse_duration_ms(text: str) -> int:
    """Read a duration such as ``500ms``, ``30s``, ``15m``, ``2h`` or ``1d``; a number alone is milliseconds."""
    match = _DURATION.fullmatch(text.lower())
    if match is None or (unit := match[2] or "ms") not in MILLISECONDS:
        raise ValueError(f"{text!r} is not a duration; one is a whole number and one of {', '.join(MILLISECONDS)}")
    if (duration_ms := int(int(match[1]) * MILLISECONDS[unit])) > LONG_MAX:
        raise ValueError(f"{text} is too long")
    return duration_ms


def one_of(choices: type[E]) -> Callable[[str], E]:
    """Return the reader of one of the values of an enum, in any case."""

    def parse(text: str) -> E:
        for choice in choices:
            if choice.value == text.lower():
                return choice
        raise ValueError(f"{text!r} is none of {', '.join(choice.value for choice in choices)}")

    return parse


def parse_list(text: str) -> tuple[str, ...]:
    """Read words separated by commas; empty ones are left out, but one must be left."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("is empty")
    return words
