"""What one setting is: its name, its type, what it may be, when it may change, and one line of help.

A key turns text into a value (``parse``) and a value into text (``text_of``) by Kafka's rules for its type, so that a
value reads the same in ``server.properties``, in DescribeConfigs and on the admin page. Keys are compared by identity:
each exists once, in ``keys`` or ``topic_keys``.

Source: Kafka's ConfigDef (types, parseType, convertToString) and its documentation of update modes (KIP-226).
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs

from trio_broker.config.errors import ConfigError

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max
"""Java's ``Double.MAX_VALUE``, which stands for no limit."""

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class ConfigType(enum.IntEnum):
    """The type of a value, numbered as DescribeConfigs sends it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
"""Width of the integer types: a value outside is refused even before its own limits are looked at."""


class UpdateMode(enum.Enum):
    """When a key may be changed, in the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    """Only by the file, the command line or the environment, at the next start."""
    PER_BROKER = "per-broker"
    """Live, for one broker."""
    CLUSTER_WIDE = "cluster-wide"
    """Live, as a default for the cluster or for one broker."""


@attrs.frozen
class Validator(Generic[T]):
    """A limit on a key's values: what to tell people, and the test itself."""

    valid_values: str
    """Completes the sentence "the value must be …"."""
    accepts: Callable[[T], bool]


@attrs.frozen
class Fallback(Generic[T]):
    """Another key that is read when a key is not set, as ``log.retention.hours`` is for ``log.retention.ms``."""

    key: ConfigKey[Any]
    convert: Callable[[Any], T]
    """Turns the other key's value into this key's unit."""


@attrs.frozen(eq=False, kw_only=True)
class ConfigKey(Generic[T]):
    """One setting, with Kafka's name unless its documentation says that it is ours."""

    name: str
    type: ConfigType
    default: T
    """The value when neither the key nor one of its fallbacks is set."""
    documentation: str
    """One line, in our own words."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    parser: Callable[[str], T] | None = None
    """Reads the text where the type alone does not say how; raises ValueError with the reason."""
    validator: Validator[T] | None = None
    sensitive: bool = False
    """A secret: never shown, DescribeConfigs answers null."""
    fallbacks: tuple[Fallback[T], ...] = ()
    """In order of precedence, after the key itself."""
    thread_pool: bool = False
    """The size of a pool: one change may at most double or halve it (Kafka's DynamicThreadPool)."""

    def parse(self, text: str) -> T:
        """Return the value that ``text`` stands for.

        Raises:
            ConfigError: it is not of the key's type, or outside the key's limits.
        """
        try:
            value: T = (self.parser or _PARSERS[self.type])(text.strip())
        except ValueError as error:
            raise self.refusal(text, str(error)) from None
        if bits := INTEGER_BITS.get(self.type):
            assert isinstance(value, int)
            if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                raise self.refusal(text, f"the value must fit into {bits} bits")
        if self.validator is not None and not self.validator.accepts(value):
            raise self.refusal(text, f"the value must be {self.validator.valid_values}")
        return value

    def refusal(self, text: str, reason: str) -> ConfigError:
        """Return the error that says why ``text`` cannot be this key's value, without showing a secret."""
        shown = "(hidden)" if self.sensitive else repr(text)
        return ConfigError(f"{self.name}: {shown} is refused: {reason}", key=self.name)

    @property
    def inherits_default(self) -> bool:
        """Whether a fallback always has a value, so that this key's own default is only that value converted."""
        return any(fallback.key.default_text is not None for fallback in self.fallbacks)

    @property
    def default_text(self) -> str | None:
        """The default as text; None when there is none, or a fallback's default speaks."""
        return None if self.inherits_default or self.default is None else self.text_of(self.default)

    @property
    def names(self) -> tuple[str, ...]:
        """The key's own name and those of its fallbacks, in order of precedence."""
        return (self.name, *(fallback.key.name for fallback in self.fallbacks))

    def text_of(self, value: T) -> str:
        """Return ``value`` as Kafka writes it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, Mapping):
            return ",".join(f"{name}:{item}" for name, item in value.items())
        if isinstance(value, float):
            return str(value).upper().replace("E+", "E")  # as Java writes large ones
        return str(value)


class ReadsKeys(Protocol):
    """Gives the effective value of a key, as ``BrokerConfig.get`` does."""

    def __call__(self, key: ConfigKey[T], /) -> T: ...


def _parse_boolean(text: str) -> bool:
    if (lowered := text.lower()) not in ("true", "false"):
        raise ValueError("the value must be true or false")
    return lowered == "true"


def _parse_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("the value must be a whole number")
    return int(text)


def _parse_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("the value must be a number") from None


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, trimmed; an empty text is an empty list."""
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.SHORT: _parse_integer,
    ConfigType.INT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: split_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}
