"""The largest request of each API that the broker accepts, made from the declarations of ``kafka_wire``.

For each array of a request there is one that has as many elements there as the reader's budget of memory, or the frame,
allows, and one element in each other array. So no API is left out, and none has to be described by hand.

The elements of the long array differ by their number alone, so one of them is encoded, again and again, and the numbers
are put into the bytes: a million objects would take ten times as long.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count as counting
from typing import Any

import attrs

from kafka_wire.codec import encode
from kafka_wire.emit_reader import (
    BASE_HEAP_BYTES,
    HEAP_BYTES_PER_REQUEST_BYTE,
    MAX_HEAP_BYTES,
    MIN_REQUEST_ELEMENT_HEAP_BYTES,
    heap_bytes,
)
from kafka_wire.primitives import Fixed, Sized
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.schema import ArrayOf, StructOf, WireType, fields_of

NUMBERED_FIELDS = frozenset({"partition_index", "partition", "partition_id", "partitions", "partition_indexes"})
"""Integers that number the elements of an array, which else were doubles."""

TEXTS = {"group_id": "g", "member_id": "m", "protocol_type": "consumer"}
"""What strings of a field are; all others are numbered names."""

TOPIC_FIELDS = frozenset({"name", "topic", "topic_names", "resource_name"})
"""Strings that name a topic, of those some that name something else: numbered ``topic_name``."""

NUMBER_DIGITS = 10

PLACEHOLDER = 0x23232323
"""The number of an element before it is numbered; as text and as four bytes it occurs nowhere else."""

NUMBERED = re.compile(rb"([a-z_]+)-%010d|%s" % (PLACEHOLDER, re.escape(PLACEHOLDER.to_bytes(4, "big"))))

BATCH = build_batch([NewRecord(timestamp=1_700_000_000_000, value=b"")])

NUMBERS = {
    **dict.fromkeys(("acks", "replica_id", "session_epoch", "timestamp"), -1),
    **dict.fromkeys(("leader_epoch", "current_leader_epoch", "last_fetched_epoch"), -1),
    **dict.fromkeys(("count", "num_partitions", "replication_factor"), 1),
    **dict.fromkeys(("timeout_ms", "partition_max_bytes", "max_bytes"), 1000),
    "resource_type": 2,
}
"""What numbers of a field are where 0 would have the whole request refused."""

_SLOT_BYTES = 8

_SAMPLE = 1000

_MARGIN_BYTES = 4096


@attrs.frozen
class LargestRequest:
    """The body of a request, the array that is long in it (a path of fields), and how long."""

    body: bytes
    path: tuple[str, ...]
    elements: int


def topic_name(number: int) -> str:
    """The name by which requests name their topics; the first one stands wherever there is only one."""
    return f"topic-{number:0{NUMBER_DIGITS}}"


@attrs.define
class _Maker:
    """Makes values of one version."""

    version: int

    def value(self, wire_type: WireType, name: str, path: tuple[str, ...], count: int, index: int) -> Any:
        """A value of ``wire_type`` for the field ``name``; the array at ``path`` gets ``count`` elements."""
        match wire_type:
            case Fixed("uuid"):
                return index.to_bytes(16, "big")
            case Fixed("bool"):
                return False
            case Fixed():
                return index if name in NUMBERED_FIELDS else NUMBERS.get(name, 0)
            case Sized("string"):
                return (
                    topic_name(index) if name in TOPIC_FIELDS else TEXTS.get(name, f"{name}-{index:0{NUMBER_DIGITS}}")
                )
            case Sized("bytes"):
                return b"\0" * 8
            case Sized():
                return memoryview(BATCH)
            case ArrayOf(element) if path == (name,):
                return [self.value(element, name, (), 0, PLACEHOLDER)] * count
            case ArrayOf(element):
                inner = path[1:] if path[:1] == (name,) else ()
                return [self.value(element, name, inner, count, 0)]
            case StructOf(cls):
                return self.struct(cls, path, count, index)

    def struct(self, cls: type[Any], path: tuple[str, ...], count: int, index: int) -> Any:
        """A struct all of whose fields are set, as far as the version has them."""
        values = {}
        for each in fields_of(cls):
            if self.version not in each.versions or self.version in each.tagged:
                values[each.name] = each.new_default()
            else:
                inner = path if path[:1] == (each.name,) else ()
                values[each.name] = self.value(each.type, each.name, inner, count, index)
        return cls(**values)


def array_paths(cls: type[Any], version: int, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays in a message, those in arrays included."""
    for each in fields_of(cls):
        if version not in each.versions or version in each.tagged:
            continue
        here = (*above, each.name)
        match each.type:
            case ArrayOf(StructOf(inner)):
                yield here
                yield from array_paths(inner, version, here)
            case ArrayOf():
                yield here
            case StructOf(inner):
                yield from array_paths(inner, version, here)


def element_cost(wire_type: WireType, version: int) -> int:
    """What an element costs by the reader's budget, arrays of one element in it included."""
    cost = max(_SLOT_BYTES + heap_bytes(wire_type, version), MIN_REQUEST_ELEMENT_HEAP_BYTES)
    if isinstance(wire_type, StructOf):
        for each in fields_of(wire_type.cls):
            if version in each.versions and version not in each.tagged and isinstance(each.type, ArrayOf):
                cost += element_cost(each.type.element, version)
    return cost


def request_with(cls: type[Any], version: int, path: tuple[str, ...], count: int) -> bytes:
    """The body of a request of ``version`` with ``count`` elements in the array at ``path``, and one in each other."""
    body = b"".join(encode(_Maker(version).struct(cls, path, count, 0), version))  # type: ignore[arg-type]
    numbers: dict[bytes | None, Callable[[], int]] = defaultdict(lambda: counting().__next__)

    def numbered(found: re.Match[bytes]) -> bytes:
        name = found[1]
        number = numbers[name]()
        return number.to_bytes(4, "big") if name is None else b"%s-%010d" % (name, number)

    return NUMBERED.sub(numbered, body)


def largest_requests(cls: type[Any], version: int, max_bytes: int) -> Iterator[LargestRequest]:
    """The largest requests of a class in a version whose frame is not above ``max_bytes``."""
    for path in array_paths(cls, version):
        few, many = (len(request_with(cls, version, path, count)) for count in (0, _SAMPLE))
        each_bytes = max((many - few) / _SAMPLE, 1.0)
        each_heap = element_cost(element_at(cls, path), version)
        beyond = each_heap - HEAP_BYTES_PER_REQUEST_BYTE * each_bytes
        by_frame = (max_bytes - few - _MARGIN_BYTES) / each_bytes
        by_heap = (MAX_HEAP_BYTES - _MARGIN_BYTES) / each_heap
        by_budget = (BASE_HEAP_BYTES - _MARGIN_BYTES) / beyond if beyond > 0 else by_frame
        count = int(min(by_frame, by_heap, by_budget))
        yield LargestRequest(request_with(cls, version, path, count), path, count)


def element_at(cls: type[Any], path: tuple[str, ...]) -> WireType:
    """The type of the elements of the array at ``path``."""
    here: WireType = StructOf(cls)
    for name in path:
        while isinstance(here, ArrayOf):
            here = here.element
        assert isinstance(here, StructOf), path
        here = next(each.type for each in fields_of(here.cls) if each.name == name)
    assert isinstance(here, ArrayOf), path
    return here.element
