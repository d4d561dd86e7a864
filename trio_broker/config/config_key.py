"""One setting: its name, type, default, valid values, update mode, and one line of documentation.

A setting is declared once, as a field of one of the settings classes (``LogConfig``, ``SocketServerConfig`` …). ``key``
makes an attrs field with all of this in its metadata, and ``keys_of`` returns the fields as ``ConfigKey`` objects. The
name of the key is that of the field with dots: ``num_io_threads`` is ``num.io.threads``.

``parse`` turns text into a value and ``text_of`` a value into text, by Kafka's rules for the type. A value is therefore
the same text in ``server.properties``, in DescribeConfigs and on the admin page.

Source: Kafka's ConfigDef (types, parseType, convertToString) and its documentation of update modes (KIP-226).
"""

from __future__ import annotations

import enum
import logging
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import attrs

from kafka_wire.limits import INT32_MAX, INT64_MAX, MAX_STRING_BYTES
from trio_broker.config.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

INT_MAX = INT32_MAX
LONG_MAX = INT64_MAX
DOUBLE_MAX = sys.float_info.max
"""Java's ``Double.MAX_VALUE``, which stands for no limit."""

SHOWN_CHARACTERS = 100
"""Of a value that is refused because it is too long."""

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
"""The width of the integer types, which is checked before the key's own limits."""


class UpdateMode(enum.Enum):
    """When a key may be changed, in the terms of Kafka's documentation (KIP-226)."""

    READ_ONLY = "read-only"
    """Only at a start: by the file, the environment or the command line."""
    PER_BROKER = "per-broker"
    """While the broker runs, for one broker."""
    CLUSTER_WIDE = "cluster-wide"
    """While the broker runs, for one broker or as a default of the cluster."""


class ConfigUnit(enum.Enum):
    """The unit of a number."""

    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    MILLISECONDS = "ms"
    MINUTES = "min"
    HOURS = "h"


UNITS_BY_SUFFIX = {
    ".bytes": ConfigUnit.BYTES,
    ".buffer.size": ConfigUnit.BYTES,
    ".bytes.per.second": ConfigUnit.BYTES_PER_SECOND,
    ".throttled.rate": ConfigUnit.BYTES_PER_SECOND,
    ".ms": ConfigUnit.MILLISECONDS,
    ".minutes": ConfigUnit.MINUTES,
    ".hours": ConfigUnit.HOURS,
}
"""How the names of Kafka's keys end, and the unit that this says."""


@attrs.frozen(kw_only=True)
class ValueBounds:
    """The limits of a key's values in parts, for forms; None or empty where there is none."""

    minimum: float | None = None
    maximum: float | None = None
    special: float | None = None
    """One more number that is accepted, such as -1 for no limit."""
    choices: tuple[str, ...] = ()
    """The accepted words; of a list, the accepted items."""


NO_BOUNDS = ValueBounds()


@attrs.frozen
class Validator(Generic[T]):
    """A limit on a key's values: a text that explains it, the check itself, and its parts."""

    valid_values: str
    """Completes the sentence "the value must be …"."""
    accepts: Callable[[T], bool]
    bounds: ValueBounds = NO_BOUNDS


@attrs.frozen
class Fallback:
    """Another key whose value counts if a key is not set, as ``log.retention.hours`` for ``log.retention.ms``."""

    key: ConfigKey
    convert: Callable[[Any], Any]
    """Turns the other key's value into this key's unit."""


@attrs.frozen(eq=False, kw_only=True)
class ConfigKey:
    """One setting. The name is Kafka's, unless the documentation begins with "Ours"."""

    name: str
    type: ConfigType
    default: Any
    """The value when neither the key nor one of its fallbacks is set."""
    documentation: str
    """One line, in our own words."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    parser: Callable[[str], Any] | None = None
    """Parses the text if the type alone does not say how; raises ValueError with the reason."""
    formatter: Callable[[Any], str] | None = None
    """The inverse of ``parser``: returns the text of a value."""
    validator: Validator[Any] | None = None
    sensitive: bool = False
    """Whether the value is a secret, which is never shown: DescribeConfigs returns null."""
    internal: bool = False
    """Whether the key is for tests only: it can be set like any other, but is neither documented nor described."""
    without_effect: bool = False
    """Whether nothing reads the key, as the part that Kafka has it for is not here: it is described only where set."""
    fallbacks: tuple[Fallback, ...] = ()
    """In order of precedence, after the key itself."""
    thread_pool: bool = False
    """Whether the value is the size of a pool, which one change may at most double or halve (DynamicThreadPool)."""
    acts_on_rates: bool = True
    """Whether a change of the key can change how many requests are answered a second, or how soon. What is read at a
    start only, or deletes and keeps old data, cannot; where it is not sure, it can."""
    replaced_by: str = ""
    """The key that Kafka asks for in place of this one, which it deprecates: a static setting of it gives a warning."""
    field: str = ""
    """The field of the settings class; empty for a key that is only a fallback of another."""
    listener: str = ""
    """The name, in lower case, of the one listener for which the key counts; empty for a key of the whole broker."""
    broker_key: ConfigKey | None = None
    """For the key of a topic or group: the broker's key (server synonym) whose value counts if it is not set."""

    def parse(self, text: str) -> Any:
        """Return the value of ``text``.

        Raises:
            ConfigError: the text is not of the key's type, or the value is outside the key's limits.
        """
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            # JSON can carry half of a surrogate pair, which neither the metadata log nor a response can.
            raise ConfigError(f"{self.name}: the value must be text that UTF-8 can encode", key=self.name) from None
        if size > MAX_STRING_BYTES:
            # The admin API takes longer ones, and neither the metadata log nor a response does.
            raise self.refusal(text[:SHOWN_CHARACTERS] + "…", f"{size} bytes, at most {MAX_STRING_BYTES} are taken")
        # Trimmed for every type, as ConfigDef.parseType does.
        try:
            value = (self.parser or _PARSERS[self.type])(text.strip())
        except ValueError as error:
            raise self.refusal(text, str(error)) from None
        if bits := INTEGER_BITS.get(self.type):
            assert isinstance(value, int)
            if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                raise self.refusal(text, f"the value must fit into {bits} bits")
        if self.validator is not None and not self.validator.accepts(value):
            raise self.refusal(text, f"the value must be {self.validator.valid_values}")
        return value

    def canonical(self, text: str) -> str:
        """Return ``text`` as Kafka writes the value for which it stands: ``true`` for `` True``.

        Raises:
            ConfigError: as ``parse``.
        """
        value = self.parse(text)
        # A list keeps its order, which the value need not have. That of a parsed policy has none.
        return ",".join(dict.fromkeys(split_list(text))) if self.type is ConfigType.LIST else self.text_of(value)

    def persisted(self, text: str) -> str:
        """Return the text that counts where ``text`` was persisted: itself, or the largest value if it is above that.

        Older versions had other limits. The nearest value to what was asked for is taken, and not the default; a value
        below its limit is refused, because a smaller one may delete more.

        Raises:
            ConfigError: the text is not valid, and not a number that is too large either.
        """
        try:
            self.parse(text)
        except ConfigError as error:
            largest = self.bounds.maximum
            if largest is None or not _is_above(text, largest):
                raise
            log.warning("%s; its largest value %s counts", error, self.text_of(largest))
            return self.text_of(largest)
        return text

    def refusal(self, text: str, reason: str) -> ConfigError:
        """Return the error for a ``text`` that is not valid; the text of a secret is left out."""
        shown = "(hidden)" if self.sensitive else repr(text)
        return ConfigError(f"{self.name}: {shown} is refused: {reason}", key=self.name)

    @cached_property
    def unit(self) -> ConfigUnit | None:
        """The unit of the key's value, which the name says."""
        return next((unit for suffix, unit in UNITS_BY_SUFFIX.items() if self.name.endswith(suffix)), None)

    @property
    def valid_values(self) -> str:
        """Completes the sentence "the value must be …"; empty if the type is the only limit."""
        return self.validator.valid_values if self.validator is not None else ""

    @property
    def bounds(self) -> ValueBounds:
        return self.validator.bounds if self.validator is not None else NO_BOUNDS

    @cached_property
    def inherits_default(self) -> bool:
        """Whether a fallback has a default, so that the key's own default is only that one in another unit."""
        return any(fallback.key.default_text is not None for fallback in self.fallbacks)

    @cached_property
    def default_text(self) -> str | None:
        """The default as text; None if the key has none, or if a fallback's default counts."""
        # A key with a formatter may have None for a value, as compression.type has for "producer".
        has_none = self.default is None and self.formatter is None
        return None if self.inherits_default or has_none else self.text_of(self.default)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The key's own name and those of its fallbacks, in order of precedence."""
        return (self.name, *(fallback.key.name for fallback in self.fallbacks))

    def text_of(self, value: Any) -> str:
        """Return ``value`` as Kafka writes it."""
        if self.formatter is not None:
            return self.formatter(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, Mapping):
            return ",".join(f"{name}:{item}" for name, item in value.items())
        if isinstance(value, float):
            # Java writes an exponent as 1.0E10, Python as 1e+10.
            return str(value).upper().replace("E+", "E").replace("INF", "Infinity")
        return str(value)

    def value_in(self, texts: Mapping[str, str]) -> Any:
        """Return the key's value in ``texts``, otherwise that of the first fallback there, otherwise the default.

        Raises:
            ConfigError: the first of these texts is not valid.
        """
        if (text := texts.get(self.name)) is not None:
            return self.parse(text)
        for fallback in self.fallbacks:
            if (text := texts.get(fallback.key.name)) is not None:
                return fallback.convert(fallback.key.parse(text))
        return self.default


@attrs.frozen
class _Declaration:
    """The arguments of ``key``, in the metadata of the field."""

    broker: str | None
    """The name of the broker's key, if it differs from the field's."""
    topic: bool
    group: str | None
    topic_validator: Validator[Any] | None
    attributes: Mapping[str, Any]


def key(
    default: Any,
    documentation: str,
    *,
    type: ConfigType | None = None,
    broker: str | None = None,
    topic: bool = False,
    group: str | None = None,
    topic_validator: Validator[Any] | None = None,
    **attributes: Any,
) -> Any:
    """Declare a setting as a field of a settings class; returns the attrs field.

    The type is that of ``default`` unless ``type`` is given (for LONG, SHORT, or a default of None). ``broker`` is the
    name of the broker's key, if it is not the field's name with dots, or empty if only topics have the key. With
    ``topic``, topics may set the key under the field's name, to what ``topic_validator`` takes if it is not what the
    broker's key does; with ``group``, groups may set it under that name.
    ``attributes`` are further fields of ``ConfigKey``.
    """
    attributes |= {"default": default, "documentation": documentation, "type": type or _type_of(default)}
    return attrs.field(
        default=default,
        repr=not attributes.get("sensitive", False),
        metadata={_Declaration: _Declaration(broker, topic, group, topic_validator, attributes)},
    )


def fallback(name: str, default: Any, convert: Callable[[Any], Any], documentation: str, **attributes: Any) -> Fallback:
    """Declare a key whose value counts only if another key is not set."""
    attributes.setdefault("type", ConfigType.INT)
    return Fallback(ConfigKey(name=name, default=default, documentation=documentation, **attributes), convert)


def unchanged(value: T) -> T:
    """The conversion for a fallback with the same unit."""
    return value


def keys_of(settings: type) -> tuple[ConfigKey, ...]:
    """Return the broker's keys in ``settings``, each after the keys that exist as its fallbacks only.

    A field that ``key`` has not declared is none.
    """
    keys: dict[str, ConfigKey] = {}
    for each in attrs.fields(settings):
        declared: _Declaration | None = each.metadata.get(_Declaration)
        if declared is not None and declared.broker != "":
            name = declared.broker or _dotted(each.name)
            found = ConfigKey(name=name, field=each.name, **declared.attributes)
            keys |= {other.key.name: other.key for other in found.fallbacks if not other.key.field}
            keys[name] = found
    return tuple(keys.values())


def topic_keys_of(settings: type, broker_keys: Mapping[str, ConfigKey]) -> tuple[ConfigKey, ...]:
    """Return the keys that topics may set, which have a broker's key (``broker_key``) or exist for topics only."""
    keys = []
    for each in attrs.fields(settings):
        declared: _Declaration = each.metadata[_Declaration]
        if declared.topic:
            name = _dotted(each.name)
            own = broker_keys.get(name if declared.broker is None else declared.broker)
            attributes = {**declared.attributes, "fallbacks": (), "update_mode": UpdateMode.CLUSTER_WIDE}
            if declared.topic_validator is not None:
                attributes["validator"] = declared.topic_validator
            keys.append(ConfigKey(name=name, field=each.name, broker_key=own, **attributes))
    return tuple(keys)


def group_keys_of(settings: type, broker_keys: Mapping[str, ConfigKey]) -> tuple[ConfigKey, ...]:
    """Return the keys that groups may set."""
    return tuple(
        attrs.evolve(
            broker_keys[_dotted(each.name)],
            name=declared.group,
            broker_key=broker_keys[_dotted(each.name)],
            update_mode=UpdateMode.CLUSTER_WIDE,
        )
        for each in attrs.fields(settings)
        if (declared := each.metadata[_Declaration]).group is not None
    )


def _dotted(field: str) -> str:
    return field.replace("_", ".")


def _type_of(default: Any) -> ConfigType:
    # Before int, of which bool is a subclass.
    if isinstance(default, bool):
        return ConfigType.BOOLEAN
    types = {int: ConfigType.INT, float: ConfigType.DOUBLE, tuple: ConfigType.LIST}
    return next((config_type for known, config_type in types.items() if isinstance(default, known)), ConfigType.STRING)


def _is_above(text: str, limit: float) -> bool:
    try:
        return _parse_double(text.strip()) > limit
    except ValueError:
        return False


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
