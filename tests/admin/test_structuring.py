"""What callers send, made into values, or refused with a pointer to each wrong one."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from starlette.datastructures import QueryParams

from broker_admin.problems import Problem
from broker_admin.schemas import PartitionNumber, SchemaWriter, bounded
from broker_admin.structuring import structure_body, structure_query


class Acks(enum.Enum):
    NONE = "none"
    ALL = "all"


@attrs.frozen
class Header:
    key: str
    value: str | None


@attrs.frozen
class Wanted:
    name: str = bounded(minLength=1, maxLength=5)
    count: int | None = bounded(None, minimum=1, maximum=9)
    ratio: float = 0.5
    acks: Acks = Acks.ALL
    headers: tuple[Header, ...] = ()
    configs: Mapping[str, str | int | None] = attrs.field(factory=dict)
    partitions: tuple[PartitionNumber, ...] = ()
    from_: str = "latest"


def refused(value: Any) -> dict[str, str]:
    with pytest.raises(Problem) as caught:
        structure_body(value, Wanted)
    assert caught.value.status == 422
    return {error.pointer: error.detail for error in caught.value.errors}


def test_a_body_becomes_an_instance_with_all_inside_it() -> None:
    body = {
        "name": "t",
        "count": 3,
        "ratio": 1,
        "acks": "none",
        "headers": [{"key": "a", "value": None}],
        "configs": {"retention.ms": 1, "x": None},
        "partitions": [0],
        "from": "earliest",
    }
    assert structure_body(body, Wanted) == Wanted(
        "t", 3, 1.0, Acks.NONE, (Header("a", None),), {"retention.ms": 1, "x": None}, (0,), "earliest"
    )
    assert structure_body({"name": "t"}, Wanted) == Wanted("t")


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ([], {""}),
        ({}, {"/name"}),
        ({"name": ""}, {"/name"}),
        ({"name": 5}, {"/name"}),
        ({"name": None}, {"/name"}),
        ({"name": "toolong", "count": 10}, {"/name", "/count"}),
        ({"name": "t", "count": True}, {"/count"}),
        ({"name": "t", "count": "3"}, {"/count"}),
        ({"name": "t", "count": 3.5}, {"/count"}),
        ({"name": "t", "acks": "some"}, {"/acks"}),
        ({"name": "t", "acks": {}}, {"/acks"}),
        ({"name": "t", "headers": "ab"}, {"/headers"}),
        ({"name": "t", "headers": [{"key": "a", "value": "b"}, {"key": 1}]}, {"/headers/1/key", "/headers/1/value"}),
        ({"name": "t", "configs": {"a/b~c": []}}, {"/configs/a~1b~0c"}),
        ({"name": "t", "partitions": [0, -1, 2**31]}, {"/partitions/1", "/partitions/2"}),
        ({"name": "t", "naem": 1, "from_": "x"}, {"/naem", "/from_"}),
    ],
)
def test_each_wrong_value_is_pointed_at(value: Any, pointers: set[str]) -> None:
    assert refused(value).keys() == pointers


def test_a_refusal_says_what_may_stand_there() -> None:
    assert refused({"name": "t", "count": 10}) == {
        "/count": "count is a whole number from 1 to 9, or null, not 10",
    }
    assert refused({"name": "t", "acks": "some"}) == {"/acks": 'acks is one of none, all, not "some"'}
    assert refused({"name": "t", "partitions": [-1]}) == {
        "/partitions/0": "partitions is a whole number from 0 to 2147483647, not -1"
    }


@attrs.frozen
class Query:
    limit: int = bounded(100, minimum=1, maximum=1000)
    dry_run: bool = False
    partition: tuple[PartitionNumber, ...] = ()
    state: tuple[str, ...] = ()
    search: str = ""


def test_a_query_is_read_from_text_and_empty_fields_of_a_form_count_as_not_given() -> None:
    parameters = QueryParams("limit=7&dry_run=true&partition=1&partition=2&state=&state=Stable&search=&other=x")
    assert structure_query(parameters, Query) == Query(7, True, (1, 2), ("Stable",), "")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=many", "?limit"),
        ("limit=0", "?limit"),
        ("limit=1001", "?limit"),
        ("limit=1&limit=2", "?limit"),
        ("limit=" + "9" * 5000, "?limit"),
        ("limit=٣", "?limit"),
        ("dry_run=yes", "?dry_run"),
        ("partition=", "?partition"),
        ("partition=0&partition=x", "?partition"),
    ],
)
def test_each_wrong_parameter_is_pointed_at(query: str, pointer: str) -> None:
    with pytest.raises(Problem) as caught:
        structure_query(QueryParams(query), Query)
    assert caught.value.status == 400
    [error] = caught.value.errors
    assert error.pointer == pointer
    assert len(error.detail) < 200


def test_the_schema_says_the_same_of_the_class() -> None:
    writer = SchemaWriter(sent=True)
    assert writer.schema_of(Wanted) == {"$ref": "#/components/schemas/Wanted"}
    schema = writer.found["Wanted"]
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["name"] == {"type": "string", "minLength": 1, "maxLength": 5}
    assert schema["properties"]["partitions"]["items"] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    assert schema["properties"]["from"] == {"type": "string", "default": "latest"}
    assert writer.found["Header"]["required"] == ["key", "value"]
