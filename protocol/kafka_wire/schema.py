"""Declaring messages: attrs classes whose fields carry their wire type and their versions.

    @message(key=0, versions="3-13", flexible="9+")
    class ProduceRequest(Request["ProduceResponse"]):
        transactional_id: String | None = field("3+", default=None)
        acks: Int16
        ...

A declaration costs little at import: the class, and a note of what was said about it. Annotations are looked at when
``fields_of`` first needs them, so a message may name structs that stand further down, and a program pays for the
messages it uses. ``__eq__`` and ``__repr__`` are written once for all classes, for the same reason.

A field reads as its default in the versions that lack it: as the declared one, else as Kafka's own for the type (0,
the empty string, the empty list …). Range spelling is Kafka's: ``3-7``, ``3+``, ``3``, ``none``.

Source: Kafka's message schemas (clients/src/main/resources/common/message/README.md), KIP-482, KIP-893.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, Union, dataclass_transform

import attrs

from kafka_wire.primitives import NO_UUID, Fixed, Sized

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")


# --- Version ranges ---

NEWEST: Final = 0x7FFF
"""The end of an open range; versions are int16."""


class VersionRange(NamedTuple):
    """Versions from ``low`` to ``high``, both included; empty when ``high`` is smaller.

    A tuple rather than an attrs class, because a program makes hundreds of them while it starts.
    """

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == NEWEST:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


ALL_VERSIONS: Final = VersionRange(0, NEWEST)
NO_VERSIONS: Final = VersionRange(0, -1)


@functools.cache
def parse_versions(text: str) -> VersionRange:
    """Return the range that ``text`` spells.

    Raises:
        ValueError: it spells none.
    """
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEWEST)
    low, dash, high = text.partition("-")
    return VersionRange(int(low), int(high if dash else low))


# --- What declarations say ---

_METADATA_KEY: Final = "kafka_wire"


class FieldOptions(NamedTuple):
    """The arguments of ``field``, still as text."""

    versions: str
    nullable: str | None
    tag: int | None
    tagged: str | None
    ignorable: bool


_PLAIN: Final = FieldOptions("0+", None, None, None, False)
"""A field that is only an annotation."""

REQUIRED: Final[Any] = attrs.NOTHING
"""The default of a field that has none: constructors must be given it."""


def field(
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    secret: bool = False,
) -> Any:
    """Say what an annotation cannot about a field.

    Args:
        versions: where the field exists.
        default: what constructors and versions without the field get.
        factory: makes the default, when it is mutable.
        nullable: where null is allowed; in all versions, if the annotation has ``| None`` and this is not given.
        tag: its number, for a tagged field. Tagged fields are written only when they differ from their default.
        tagged: where it is tagged, when not wherever it exists.
        ignorable: may silently be left out of a version that lacks it. Other fields must be at their default there,
            or the writer refuses.
        secret: has, or may have, a password or what stands for one, and is left out of ``repr``: of what is logged.
    """
    options = FieldOptions(versions, nullable, tag, tagged, ignorable)
    if factory is not None:
        return attrs.field(factory=factory, repr=not secret, metadata={_METADATA_KEY: options})
    return attrs.field(default=default, repr=not secret, metadata={_METADATA_KEY: options})


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _represent(self: Any) -> str:
    shown = [
        f"{each.name}={getattr(self, each.name)!r}" if each.repr else f"{each.name}=(hidden)"
        for each in attrs.fields(type(self))
    ]
    return f"{type(self).__name__}({', '.join(shown)})"


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a part of messages; its versions are those of the message it stands in."""
    cls.__eq__ = _equal  # type: ignore[method-assign]
    cls.__repr__ = _represent  # type: ignore[method-assign]
    # As attrs does for a mutable class with equality; it does not know of this one, which has ``eq=False``.
    cls.__hash__ = None  # type: ignore[assignment]
    return attrs.define(cls, kw_only=True, eq=False, order=False, repr=False, weakref_slot=False)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, versions: str, flexible: str, key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a request, a response, or a stored record.

    The class gets ``API_KEY`` (for a stored record: its type), ``VERSIONS``, and ``FLEXIBLE_FROM``: the first version
    with compact lengths and tagged fields, or None.
    """
    flexible_versions = parse_versions(flexible)

    def declare(cls: type[T]) -> type[T]:
        declared: Any = struct(cls)
        declared.API_KEY = key
        declared.VERSIONS = parse_versions(versions)
        declared.FLEXIBLE_FROM = flexible_versions.low if flexible_versions else None
        return typing.cast("type[T]", declared)

    return declare


class _ResponseReference:
    """Finds the response class a request was declared with, by its name, when somebody asks."""

    def __get__(self, instance: object, owner: type[Request[ResponseT]]) -> type[ResponseT]:
        for base in getattr(owner, "__orig_bases__", ()):
            if typing.get_origin(base) is Request:
                (reference,) = typing.get_args(base)
                name = reference.__forward_arg__ if isinstance(reference, typing.ForwardRef) else reference.__name__
                return typing.cast("type[ResponseT]", getattr(sys.modules[owner.__module__], name))
        raise TypeError(f"{owner.__name__} does not name its response")


class Request(Generic[ResponseT]):
    """A request; in the brackets stands the class of its response, as text."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE_FROM: ClassVar[int | None]
    RESPONSE = _ResponseReference()


# --- What declarations mean ---


@attrs.frozen
class ArrayOf:
    """A list of values of one type."""

    element: WireType


@attrs.frozen
class StructOf:
    """The fields of a declared class, one after the other."""

    cls: type[Any]


WireType: TypeAlias = Fixed | Sized | ArrayOf | StructOf


@attrs.frozen
class Field:
    """A declared field, with its ranges resolved.

    ``default`` is the value itself, and None when there is a ``factory``. ``nullable`` and ``tagged`` are ranges, empty
    where the field never is.
    """

    name: str
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    ignorable: bool
    default: Any
    factory: Callable[[], Any] | None

    def new_default(self) -> Any:
        """Return the default, a new one if it is mutable."""
        return self.default if self.factory is None else self.factory()


_KAFKA_DEFAULTS: Final[Mapping[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": NO_UUID,
}
"""What Kafka takes for a field without a declared default, where that is not the number 0."""


_fields: Final[dict[type[Any], tuple[Field, ...]]] = {}


def fields_of(cls: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a declared class, in the order of the wire (tagged ones stand among them).

    Raises:
        TypeError: the declaration makes no sense; the text names class and field.
    """
    if cls not in _fields:
        # Kept, since resolving evaluates annotations; and done at the first use, since structs are declared below their
        # messages.
        _fields[cls] = tuple(_resolve(cls, attribute) for attribute in attrs.fields(cls))
    return _fields[cls]


def _resolve(cls: type[Any], attribute: attrs.Attribute[Any]) -> Field:
    options: FieldOptions = attribute.metadata.get(_METADATA_KEY, _PLAIN)
    where = f"{cls.__name__}.{attribute.name}"
    wire_type, optional = _wire_type(_evaluated(cls, attribute.type), where)
    if options.nullable is not None and not optional:
        raise TypeError(f"{where} is nullable, but its annotation lacks '| None'")
    if options.tagged is not None and options.tag is None:
        raise TypeError(f"{where} is tagged, but has no tag")
    versions = parse_versions(options.versions)
    default, factory = _default(attribute.default, wire_type)
    return Field(
        name=attribute.name,
        type=wire_type,
        versions=versions,
        nullable=_optional_range(options.nullable, applies=optional, otherwise=ALL_VERSIONS),
        tag=options.tag,
        tagged=_optional_range(options.tagged, applies=options.tag is not None, otherwise=versions),
        ignorable=options.ignorable,
        default=default,
        factory=factory,
    )


def default_instance(cls: type[Any]) -> Any:
    """Return an instance with every field at its default, also those that constructors must be given."""
    return cls(**{each.name: each.new_default() for each in fields_of(cls)})


def _optional_range(text: str | None, *, applies: bool, otherwise: VersionRange) -> VersionRange:
    if not applies:
        return NO_VERSIONS
    return otherwise if text is None else parse_versions(text)


def _default(declared: Any, wire_type: WireType) -> tuple[Any, Callable[[], Any] | None]:
    if isinstance(declared, attrs.Factory):  # type: ignore[arg-type]
        return None, declared.factory
    if declared is not attrs.NOTHING:
        return declared, None
    match wire_type:
        case ArrayOf():
            return None, list
        case StructOf(cls):
            return None, functools.partial(default_instance, cls)
        case Fixed(kafka_type) | Sized(kafka_type):
            return _KAFKA_DEFAULTS.get(kafka_type, 0), None


def _evaluated(cls: type[Any], annotation: Any) -> Any:
    """Return an annotation as an object; most are text, because structs are declared below their messages."""
    if isinstance(annotation, str):
        return eval(annotation, vars(sys.modules[cls.__module__]))
    return annotation


def _wire_type(annotation: Any, where: str) -> tuple[WireType, bool]:
    """Return the wire type an annotation stands for, and whether it has ``| None``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and types.NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _wire_type(inner, where)[0], True
    if origin is Annotated and isinstance(arguments[1], (Fixed, Sized)):
        return arguments[1], False
    if origin is list:
        element, optional = _wire_type(arguments[0], where)
        if optional:
            raise TypeError(f"{where}: the protocol has no null inside an array")
        return ArrayOf(element), False
    if attrs.has(annotation):
        return StructOf(annotation), False
    raise TypeError(f"{where}: {annotation!r} is no wire type")
