"""The forms of readers and writers that give turns: the same messages, and never many elements at once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from fuzz.dense_messages import dense_messages
from kafka_wire import emit_reader, emit_source, emit_writer
from kafka_wire.codec import decode, decode_at_most, decode_in_turns, encode_bytes, encode_in_turns
from kafka_wire.emit_source import TURN_BYTES, TURN_ELEMENTS
from kafka_wire.errors import WireError
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_wire.primitives import MAX_TAGS
from kafka_wire.release import release_in_turns
from tests.protocol.generators import run
from tests.protocol.message_strategies import check_versions, message_kinds

A_FEW = Fraction(1, 20)

COUNT = 50 * TURN_ELEMENTS

LONG_BREADTH = 6
"""Of arrays around a long field: in two of them, its bytes are 432 elements, and the arrays have but 36."""

MAX_LONG_BYTES = 4_000_000


@pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)
def test_a_message_is_read_and_written_the_same_in_turns(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a turn after each element and each byte, so that every place that may yield does."""
    for module in (emit_source, emit_reader, emit_writer):
        monkeypatch.setattr(module, "TURN_ELEMENTS", 1)
    monkeypatch.setattr(emit_reader, "TURN_BYTES", 1)
    forms: dict[int, tuple[Any, Any]] = {}

    def same(version: int, message: Any) -> None:
        if version not in forms:
            flexible = kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM
            forms[version] = (
                emit_reader.emit_reader(kind, version, flexible, in_turns=True),
                emit_writer.emit_writer(kind, version, flexible, in_turns=True),
            )
        read, write = forms[version]
        encoded = encode_bytes(message, version)
        assert run(read(memoryview(encoded), 0))[0] == (message, len(encoded))
        assert b"".join(run(write(message))[0]) == encoded

    check_versions(kind, same, share=A_FEW)


LARGE_MESSAGES = [
    pytest.param(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    topic="orders",
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(COUNT)
                    ],
                )
            ],
        ),
        12,
        id="structs",
    ),
    pytest.param(DescribeGroupsRequest(groups=[f"group-{index}" for index in range(COUNT)]), 6, id="strings"),
    pytest.param(
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="orders", partitions=list(range(COUNT)))]),
        2,
        id="numbers",
    ),
]


@pytest.mark.parametrize(("message", "version"), LARGE_MESSAGES)
def test_a_large_message_gives_turns_where_it_is_read_written_and_freed(message: Any, version: int) -> None:
    chunks, turns = run(encode_in_turns(message, version))
    assert turns >= COUNT // TURN_ELEMENTS
    encoded = b"".join(chunks)  # type: ignore[arg-type]
    assert encoded == encode_bytes(message, version)
    (decoded, _), turns = run(decode_in_turns(type(message), version, encoded))
    assert turns >= COUNT // TURN_ELEMENTS
    assert decoded == message
    messages = [decoded]
    _, turns = run(release_in_turns(messages))
    assert messages == []
    assert turns >= COUNT // TURN_ELEMENTS
    assert decoded == message, "what somebody else holds stays whole"


@pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)
def test_every_construct_whose_count_is_the_clients_gives_turns(kind: type[Any]) -> None:
    """Arrays of the smallest elements and tagged fields, alone and in the elements of an array around them."""
    for version in {kind.VERSIONS.low, kind.VERSIONS.high}:
        for count, breadth in ((MAX_TAGS, 1), (MAX_TAGS, 5), (5 * TURN_ELEMENTS, 1)):
            for dense in dense_messages(kind, version, count, breadth):
                if dense.construct.endswith("tags") and count > MAX_TAGS:
                    with pytest.raises(WireError, match="a struct may have 100"):
                        run(decode_in_turns(kind, version, dense.data))
                    continue
                read, turns = run(decode_in_turns(kind, version, dense.data))
                assert read == decode(kind, version, dense.data)
                assert read[1] == len(dense.data)
                assert turns >= dense.elements // TURN_ELEMENTS, f"version {version}: {dense.construct}"


@pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)
def test_the_bytes_of_strings_count_as_elements(kind: type[Any]) -> None:
    """Three dozen strings of the longest are a megabyte of text to look through."""
    for version in {kind.VERSIONS.low, kind.VERSIONS.high}:
        for dense in dense_messages(kind, version, 1, LONG_BREADTH, long=True):
            if dense.elements < 4 * TURN_ELEMENTS or len(dense.data) > MAX_LONG_BYTES:
                continue  # Not two arrays are around it, but fewer or more.
            read, turns = run(decode_in_turns(kind, version, dense.data))
            assert read[1] == len(dense.data)
            assert turns >= dense.elements // TURN_ELEMENTS // 2, f"version {version}: {dense.construct}"
            chunks, turns = run(encode_in_turns(read[0], version))
            assert b"".join(chunks) == encode_bytes(read[0], version)  # type: ignore[arg-type]
            assert turns >= dense.elements // TURN_ELEMENTS // 2, f"version {version}: {dense.construct}"


def test_a_megabyte_of_bytes_is_copied_in_turns() -> None:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=bytes(range(256)) * 4096)
    message = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type="", protocol_name="", assignments=[assignment]
    )
    (decoded, _), turns = run(decode_in_turns(SyncGroupRequest, 5, encode_bytes(message, 5)))
    assert decoded == message
    assert turns >= 1024 * 1024 // TURN_BYTES


def test_a_message_of_few_elements_gives_no_turn() -> None:
    message = DescribeGroupsRequest(groups=["g"])
    chunks, turns = run(encode_in_turns(message, 6))
    assert (chunks, turns) == ([encode_bytes(message, 6)], 0)
    encoded = encode_bytes(message, 6)
    assert run(decode_in_turns(DescribeGroupsRequest, 6, encoded)) == ((message, len(encoded)), 0)


@pytest.mark.parametrize(("message", "version"), LARGE_MESSAGES)
def test_a_message_of_more_elements_than_its_reader_wants_is_not_read_to_its_end(message: Any, version: int) -> None:
    encoded = encode_bytes(message, version)
    assert decode_at_most(COUNT + 1, type(message), version, encoded) == (message, len(encoded))
    # Cut off far behind the bound: who read on would say that it ends too early.
    with pytest.raises(WireError, match=f"has more than {TURN_ELEMENTS} elements"):
        decode_at_most(TURN_ELEMENTS, type(message), version, encoded[: len(encoded) - 2])


def test_every_prefix_is_refused_in_turns_as_it_is_at_once() -> None:
    encoded = encode_bytes(DescribeGroupsRequest(groups=["group", "\N{SNOWMAN}"]), 6)
    for end in range(len(encoded)):
        with pytest.raises(WireError) as at_once:
            decode(DescribeGroupsRequest, 6, encoded[:end])
        with pytest.raises(WireError, match=str(at_once.value).replace("(", r"\(").replace(")", r"\)")):
            run(decode_in_turns(DescribeGroupsRequest, 6, encoded[:end]))
    with pytest.raises(WireError, match="not UTF-8"):
        run(decode_in_turns(DescribeGroupsRequest, 6, encoded.replace("\N{SNOWMAN}".encode(), b"\xff\xff\xff")))
    for read in (decode, decode_in_turns):
        with pytest.raises(WireError, match="not 99"):
            list(read(DescribeGroupsRequest, 99, encoded))
    with pytest.raises(ValueError, match="not 99"):
        run(encode_in_turns(DescribeGroupsRequest(groups=[]), 99))
    with pytest.raises(ValueError, match="groups"):
        run(encode_in_turns(DescribeGroupsRequest(groups=None), 6))  # type: ignore[arg-type]
