"""kafka_wire.apis."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_wire.apis import FLEXIBLE_FROM, ApiKey, api_name

COMMENT = re.compile(r"^\s*//.*$|\s//\s.*$", re.MULTILINE)


@pytest.fixture(scope="module")
def request_schemas(kafka_messages: Path) -> dict[int, dict[str, Any]]:
    """The schemas of all requests, by API key; only what stands before the fields."""
    schemas = {}
    for path in (kafka_messages / "clients-common-message").glob("*Request.json"):
        text = COMMENT.sub("", path.read_text())
        head = text.partition('"fields"')[0].partition('"commonStructs"')[0].rstrip().rstrip(",}").rstrip()
        schema = json.loads(head.rstrip(",") + "}")
        schemas[schema["apiKey"]] = schema
    return schemas


def test_the_keys_and_names_are_kafkas(request_schemas: dict[int, dict[str, Any]]) -> None:
    theirs = {key: schema["name"].removesuffix("Request") for key, schema in request_schemas.items()}
    assert {int(key): api_name(key) for key in ApiKey} == theirs


def test_flexible_versions_begin_where_kafkas_do(request_schemas: dict[int, dict[str, Any]]) -> None:
    def first(schema: dict[str, Any]) -> int | None:
        flexible = schema.get("flexibleVersions", "none")
        return None if flexible == "none" else int(flexible.rstrip("+"))

    assert dict(FLEXIBLE_FROM) == {key: first(schema) for key, schema in request_schemas.items()}


def test_an_unknown_key_has_a_name_for_the_log() -> None:
    assert api_name(4711) == "unknown API 4711"
