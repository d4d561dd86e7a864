"""kafka_wire.schema."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.primitives import Int16, Int32, Records, String, Uuid
from kafka_wire.schema import (
    ALL_VERSIONS,
    NEWEST,
    ArrayOf,
    Request,
    StructOf,
    default_instance,
    field,
    fields_of,
    message,
    parse_versions,
    struct,
)


@message(key=501, versions="1-5", flexible="4+")
class OrderRequest(Request["OrderResponse"]):
    customer: String | None
    lines: list[OrderLine]
    note: String | None = field("2+", default=None, nullable="3+", ignorable=True)
    urgent: Int16 = field("4+", default=7, tag=0, tagged="5+")
    address: Address | None = field("5+", default=None)


@struct
class OrderLine:
    article: Uuid
    count: Int32 = field(default=1)
    prices: list[Int32] = field("3+", factory=list)


@struct
class Address:
    street: String
    city: String


@message(key=501, versions="1-5", flexible="none")
class OrderResponse:
    attachment: Records | None


@message(versions="0", flexible="none")
class Nameless:
    number: Int32


@message(versions="0", flexible="none")
class NoWireType:
    number: int


@message(versions="0", flexible="none")
class NullInArray:
    numbers: list[String | None]


@message(versions="0", flexible="none")
class NullableWithoutNone:
    name: String = field(nullable="0+")


@message(versions="0", flexible="none")
class TaggedWithoutTag:
    name: String = field(tagged="0+")


def line(**values: object) -> OrderLine:
    return OrderLine(**({"article": bytes(16)} | values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "versions"),
    [("0+", (0, NEWEST)), ("3-7", (3, 7)), ("5", (5, 5)), ("none", (0, -1))],
)
def test_ranges_are_spelled_as_kafka_spells_them(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == versions
    assert str(parse_versions(text)) == text


def test_a_range_knows_its_versions() -> None:
    versions = parse_versions("3-5")
    assert [version for version in range(8) if version in versions] == [3, 4, 5]
    assert versions
    assert 4 not in parse_versions("none")
    assert not parse_versions("none")


@pytest.mark.parametrize("text", ["", "x", "3-", "-1", "+"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_versions(text)


def test_a_message_knows_its_key_and_versions() -> None:
    assert OrderRequest.API_KEY == 501
    assert OrderRequest.VERSIONS == (1, 5)
    assert OrderRequest.FLEXIBLE_FROM == 4
    assert vars(OrderResponse)["FLEXIBLE_FROM"] is None
    assert vars(Nameless)["API_KEY"] is None


def test_a_request_names_its_response_which_may_stand_below_it() -> None:
    response: type[OrderResponse] = OrderRequest.RESPONSE
    assert response is OrderResponse


def test_fields_stand_in_the_order_of_the_wire_with_their_types() -> None:
    fields = {each.name: each for each in fields_of(OrderRequest)}
    assert list(fields) == ["customer", "lines", "note", "urgent", "address"]
    assert fields["lines"].type == ArrayOf(StructOf(OrderLine))
    assert fields["address"].type == StructOf(Address)
    assert fields["urgent"].tag == 0
    assert fields["urgent"].versions == (4, NEWEST)
    assert fields["urgent"].tagged == (5, NEWEST)
    assert not fields["lines"].tagged


def test_none_in_the_annotation_makes_a_field_nullable_where_it_says() -> None:
    nullable = {each.name: each.nullable for each in fields_of(OrderRequest)}
    assert nullable["customer"] == ALL_VERSIONS
    assert nullable["note"] == (3, NEWEST)
    assert not nullable["lines"]


def test_a_required_field_reads_as_kafkas_default_where_it_does_not_exist() -> None:
    order = default_instance(OrderRequest)
    assert order == OrderRequest(customer="", lines=[], note=None, urgent=7, address=None)
    assert default_instance(OrderLine) == OrderLine(article=bytes(16), count=1, prices=[])
    assert default_instance(OrderResponse).attachment == b""


def test_mutable_defaults_are_not_shared() -> None:
    assert line().prices is not line().prices
    assert default_instance(OrderRequest).lines is not default_instance(OrderRequest).lines


def test_constructors_take_keywords_and_want_what_is_required() -> None:
    with pytest.raises(TypeError, match="article"):
        OrderLine(count=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        OrderLine(bytes(16))  # type: ignore[call-arg]


def test_equal_values_are_equal_and_others_are_not() -> None:
    assert line(count=3) == line(count=3)
    assert line(count=3) != line(count=4)
    other: Any = Address(street="", city="")
    assert line() != other
    evolvable: Any = line()
    assert attrs.evolve(evolvable, count=9).count == 9


def test_values_are_changeable_and_therefore_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(line())
    with pytest.raises(AttributeError):
        line().colour = "red"  # type: ignore[attr-defined]


def test_a_value_shows_its_fields() -> None:
    assert repr(Address(street="Hay Lane", city="York")) == "Address(street='Hay Lane', city='York')"


@pytest.mark.parametrize(
    ("cls", "problem"),
    [
        (NoWireType, "NoWireType.number: <class 'int'> is no wire type"),
        (NullInArray, "no null inside an array"),
        (NullableWithoutNone, r"lacks '\| None'"),
        (TaggedWithoutTag, "has no tag"),
    ],
)
def test_a_declaration_without_sense_is_refused_when_it_is_looked_at(cls: type, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        fields_of(cls)


def test_a_request_that_names_no_response_says_so() -> None:
    @message(versions="0", flexible="none")
    class Lonely(Request):  # type: ignore[type-arg]
        number: Int32

    with pytest.raises(TypeError, match="Lonely does not name its response"):
        _ = Lonely.RESPONSE
