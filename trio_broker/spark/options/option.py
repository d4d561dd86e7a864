"""What one option of a job is, and how options are read from what a user wrote.

Options are declared once, as data (``kafka_options``, ``read_option_table``, ``write_options``). Parsing, the settings
that a job runs with, hints for misspelt names and the pages of the documentation come from these declarations. Names
are compared without regard to case, as Spark does; it hands them over in lower case.

Values follow Scala's rules where Spark's Kafka source uses them (``toBoolean``, ``toInt``) and Spark's for durations.
Spaces around a value are allowed everywhere.

Source: JavaUtils.timeStringAs for durations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import attrs

from kafka_wire.limits import INT64_MAX
from trio_broker.common.did_you_mean import CLOSE
from trio_broker.spark.errors import OptionError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=Enum)

MILLISECONDS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
"""The units that Spark knows; a number without one is milliseconds."""

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)", re.ASCII)


class Mode(Enum):
    """The kind of query a job is."""

    BATCH = "batch"
    STREAM = "stream"


BOTH: Final = frozenset(Mode)


# --- Values ---


@attrs.frozen
class ValueType(Generic[T_co]):
    """How the values of an option are written. ``parse`` raises ``ValueError`` with the reason."""

    form: str
    parse: Callable[[str], T_co]


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _parse_boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(f"{text!r} is neither true nor false")


def _parse_duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None or (unit := match[2] or "ms") not in MILLISECONDS:
        raise ValueError(f"{text!r} is not a duration; one is a whole number and one of {', '.join(MILLISECONDS)}")
    if (duration_ms := int(int(match[1]) * MILLISECONDS[unit])) > INT64_MAX:
        raise ValueError(f"{text} is too long")
    return duration_ms


def _parse_list(text: str) -> tuple[str, ...]:
    """Split at commas; empty words are left out, but one must be left."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("is empty")
    return words


TEXT: Final = ValueType("text", _parse_text)
BOOLEAN: Final = ValueType("true, false", _parse_boolean)
DURATION_MS: Final = ValueType("duration: `500ms`, `30s`, `15m`, `2h`, `1d`", _parse_duration_ms)
NAMES: Final = ValueType("name,name…", _parse_list)


def parse_long(text: str) -> int:
    """Read a whole number of 64 bits."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    if not -INT64_MAX - 1 <= (number := int(text)) <= INT64_MAX:
        raise ValueError(f"{text} needs more than 64 bits")
    return number


def integer(minimum: int, maximum: int = INT64_MAX) -> ValueType[int]:
    """Return the type of a whole number between the two, inclusive."""

    def parse(text: str) -> int:
        number = parse_long(text)
        if number < minimum:
            raise ValueError(f"{text} is too small; the least is {minimum}")
        if number > maximum:
            raise ValueError(f"{text} is too large; the most is {maximum}")
        return number

    return ValueType("integer", parse)


def one_of(choices: type[E]) -> ValueType[E]:
    """Return the type of an enum, whose values are written by their ``text_of``, in any case."""
    by_text = {text_of(choice): choice for choice in choices}

    def parse(text: str) -> E:
        if (choice := by_text.get(text.lower())) is None:
            raise ValueError(f"{text!r} is none of {', '.join(by_text)}")
        return choice

    return ValueType(", ".join(by_text), parse)


def text_of(choice: Enum) -> str:
    """Return how a value of an enum is written: its value, or its name where the value is a number."""
    return choice.value if isinstance(choice.value, str) else choice.name.lower()


# --- Options ---


@attrs.frozen(eq=False)
class Option(Generic[T_co]):
    """One option. Compared by identity, since each is declared once.

    ``attribute`` is the field that its value becomes in the settings of a job. ``form`` and ``default_text`` are what
    the documentation says where the type and the default do not say it, and ``difference`` how the option differs from
    the one in Spark's Kafka source.
    """

    name: str
    type: ValueType[T_co]
    default: T_co | None
    meaning: str
    form: str = attrs.field(default=attrs.Factory(lambda self: self.type.form, takes_self=True))
    modes: frozenset[Mode] = BOTH
    default_text: str | None = None
    difference: str = ""
    attribute: str = attrs.field(default=attrs.Factory(lambda self: attribute_of(self.name), takes_self=True))

    @property
    def required_default(self) -> T_co:
        """The default of an option that has one."""
        assert self.default is not None, f"{self.name} has no default"
        return self.default

    def documented_default(self) -> str:
        """Return the default as the documentation writes it."""
        match self.default_text, self.default:
            case str(text), _:
                return text
            case _, None | "":
                return "not set"
            case _, Enum() as choice:
                return f"`{text_of(choice)}`"
            case _, bool(value):
                return f"`{str(value).lower()}`"
            case _, value:
                return f"`{value}`"


def attribute_of(name: str) -> str:
    """Return an option's usual field: ``batch_size`` for ``kafka.batch.size``, ``batch_rows`` for ``batchRows``."""
    bare = name.removeprefix("kafka.").replace(".", "_")
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), bare)


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
        return self.text_of(option.name)

    def text_of(self, name: str) -> str:
        """Return what was written for ``name``, which is given."""
        return self._values[name.lower()]

    def read(self, option: Option[T]) -> T | None:
        """Return the value of ``option``, or its default.

        Raises:
            OptionError: the text is no value of the option's type.
        """
        if option not in self:
            return option.default
        try:
            return option.type.parse(self.text(option).strip())
        except ValueError as error:
            raise OptionError(self.spelling(option.name), str(error)) from None

    def read_required(self, option: Option[T]) -> T:
        """Return the value of an ``option`` that has a default."""
        value = self.read(option)
        assert value is not None, f"{option.name} has no default"
        return value

    def read_fields(self, settings: type[attrs.AttrsInstance], options: Iterable[Option[Any]]) -> dict[str, Any]:
        """Return the values of those of ``options`` that are fields of ``settings``, by field.

        Raises:
            OptionError: a text is no value of its option's type.
        """
        fields = attrs.fields_dict(settings)
        return {option.attribute: self.read(option) for option in options if option.attribute in fields}

    def spelling(self, name: str) -> str:
        """Return how the user wrote ``name``; what is all lower case may be Spark's doing, so the usual form wins."""
        given = self._spellings.get(name.lower(), name)
        return name if given.islower() else given

    def error(self, option: Option[Any], reason: str) -> OptionError:
        """Return the error that says why ``option`` is refused."""
        return OptionError(self.spelling(option.name), reason)


def hint(name: str, known: Iterable[str]) -> str:
    """Return what a misspelt ``name`` may have meant, as the end of a sentence, or nothing."""
    spellings = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), spellings, n=1, cutoff=CLOSE)
    return f"; did you mean {spellings[close[0]]!r}?" if close else ""


def with_defaults(options: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return ``options``, and those of ``defaults`` that they do not have under any spelling."""
    given = {name.lower() for name in options}
    return {**{name: value for name, value in defaults.items() if name.lower() not in given}, **options}
