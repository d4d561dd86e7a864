"""Kafka's message schemas, and what they and our declarations say about one version, in comparable form.

A schema file is JSON with comments. ``kafka_view`` and ``our_view`` both lay out a message as one version writes it:
each field with its type, its tag, whether it may be null, and its default; and each field of other versions, with what
becomes of it in this one. Two equal views are the same bytes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs

from kafka_wire.primitives import NO_UUID, Fixed, Sized
from kafka_wire.schema import ArrayOf, StructOf, VersionRange, WireType, fields_of, parse_versions

COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
TRAILING_COMMA = re.compile(r",(\s*[\]}])")
WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

KAFKAS_STRUCT_NAMES = {"TargetTopicPartitions": "TopicPartition"}
"""Structs of stored records with a name of their own, because the product has another class of Kafka's name."""

ZERO_VALUES: dict[str, Any] = {"bool": False, "string": "", "bytes": "", "uuid": NO_UUID.hex(), "float64": 0.0}


@attrs.frozen
class PresentField:
    """A field this version writes; ``type`` is Kafka's name for it, or the view of a struct."""

    name: str
    type: Any
    nullable: bool
    tag: int | None
    default: Any


@attrs.frozen
class AbsentField:
    """A field that only other versions write: what it reads as here, and whether a value may be dropped silently."""

    name: str
    default: Any
    ignorable: bool


def load_schema(path: Path) -> dict[str, Any]:
    """Return the schema in ``path``."""
    text = COMMENT.sub(lambda match: match.group(1) or "", path.read_text())
    schema: dict[str, Any] = json.loads(TRAILING_COMMA.sub(r"\1", text))
    return schema


def snake_case(name: str) -> str:
    """Return Kafka's ``LogAppendTimeMs`` as our ``log_append_time_ms``."""
    return WORD_BOUNDARY.sub("_", name).lower()


def intersection(one: VersionRange, other: VersionRange) -> VersionRange:
    return VersionRange(max(one.low, other.low), min(one.high, other.high))


# --- Kafka's side ---


def kafka_view(schema: dict[str, Any], version: int, served: VersionRange) -> list[PresentField | AbsentField]:
    """Return the fields of a message, as Kafka's schema has them in ``version``."""
    structs = {entry["name"]: entry["fields"] for entry in schema.get("commonStructs", ())}
    return kafka_fields(schema["fields"], version, served, structs)


def kafka_fields(
    fields: list[dict[str, Any]], version: int, alive: VersionRange, structs: dict[str, Any]
) -> list[PresentField | AbsentField]:
    view: list[PresentField | AbsentField] = []
    for field in fields:
        # A field that is a tag wherever it is there may name those versions alone.
        versions = intersection(parse_versions(field.get("versions") or field["taggedVersions"]), alive)
        if not versions:
            continue
        name, default = snake_case(field["name"]), kafka_default(field, structs)
        if version not in versions:
            view.append(AbsentField(name, default, bool(field.get("ignorable", False))))
            continue
        nullable = version in parse_versions(field.get("nullableVersions", "none"))
        tagged = version in parse_versions(field.get("taggedVersions", "none"))
        kind = kafka_type(field, version, versions, structs)
        view.append(PresentField(name, kind, nullable, field["tag"] if tagged else None, default))
    return view


def kafka_type(field: dict[str, Any], version: int, alive: VersionRange, structs: dict[str, Any]) -> Any:
    name = field["type"].removeprefix("[]")
    if name[0].isupper():
        kind: Any = (name, kafka_fields(field.get("fields") or structs[name], version, alive, structs))
    else:
        kind = name
    return [kind] if field["type"].startswith("[]") else kind


def kafka_default(field: dict[str, Any], structs: dict[str, Any]) -> Any:
    """Return a field's default: the declared one, else the zero of its type."""
    kind, declared = field["type"], field.get("default")
    if declared == "null":
        return None
    # JSON's own null is no default to Kafka's generator, and becomes the zero like none at all.
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        inner = field.get("fields") or structs[kind]
        return {snake_case(part["name"]): kafka_default(part, structs) for part in inner}
    if declared is None:
        return ZERO_VALUES.get(kind, 0)
    if kind == "bool":
        return str(declared).lower() == "true"
    return declared if kind == "string" else int(str(declared), 0)


# --- Our side ---


def our_view(cls: type[Any], version: int, alive: VersionRange) -> list[PresentField | AbsentField]:
    """Return the fields of a declared class in ``version``."""
    view: list[PresentField | AbsentField] = []
    for field in fields_of(cls):
        versions = intersection(field.versions, alive)
        default = our_default(field.new_default())
        if version not in versions:
            view.append(AbsentField(field.name, default, field.ignorable))
            continue
        tag = field.tag if version in field.tagged else None
        kind = our_type(field.type, version, versions)
        view.append(PresentField(field.name, kind, version in field.nullable, tag, default))
    return view


def our_type(kind: WireType, version: int, alive: VersionRange) -> Any:
    match kind:
        case Fixed(kafka_type) | Sized(kafka_type):
            return kafka_type
        case ArrayOf(element):
            return [our_type(element, version, alive)]
        case StructOf(cls):
            return (KAFKAS_STRUCT_NAMES.get(cls.__name__, cls.__name__), our_view(cls, version, alive))


def our_default(default: Any) -> Any:
    if attrs.has(type(default)):
        return {field.name: our_default(getattr(default, field.name)) for field in fields_of(type(default))}
    return default.hex() if isinstance(default, bytes) else default
