"""Records of a coordinator as the Java oracles take them and tell them."""

from __future__ import annotations

import base64
from typing import Any

import attrs

from kafka_wire.primitives import uuid_text
from kafka_wire.schema import fields_of
from tests.protocol.kafka_schemas import snake_case

UUID_FIELDS = {"topic_id"}


def as_given(key: bytes, value: bytes | None) -> dict[str, str | None]:
    return {"key": key.hex(), "value": None if value is None else value.hex()}


def assert_same(ours: Any, javas: Any, version: int) -> None:
    """Check that a message or struct says what Java's JSON says; a field at its default may be missing there."""
    named = {snake_case(name): value for name, value in javas.items()}
    for field in fields_of(type(ours)):
        mine = getattr(ours, field.name)
        if field.name in named:
            assert_same_value(field.name, mine, named.pop(field.name), version)
        else:
            assert version not in field.versions or mine == field.new_default(), field.name
    assert not named, "Java has fields that we lack"


def assert_same_value(name: str, mine: Any, javas: Any, version: int) -> None:
    if attrs.has(type(mine)):
        assert_same(mine, javas, version)
    elif isinstance(mine, list):
        for one, other in zip(mine, javas, strict=True):
            assert_same_value(name, one, other, version)
    elif isinstance(mine, bytes):
        assert (uuid_text(mine) if name in UUID_FIELDS else base64.b64encode(mine).decode()) == javas
    else:
        assert mine == javas
