"""kafka_wire.codec, with its readers and writers, on messages made up for it."""

from __future__ import annotations

import contextlib
import linecache
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.dense_messages import dense_messages
from kafka_wire.codec import decode, encode, encode_bytes, reader, source_of, writer
from kafka_wire.emit_reader import (
    BASE_HEAP_BYTES,
    MAX_ELEMENTS,
    MAX_HEAP_BYTES,
    MIN_ELEMENT_HEAP_BYTES,
    MIN_REQUEST_ELEMENT_HEAP_BYTES,
    minimal_bytes,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.primitives import (
    MAX_TAGS,
    NO_UUID,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    UInt16,
    UInt32,
    Uuid,
)
from kafka_wire.schema import Request, StructOf, field, message, struct
from trio_broker.cluster.replication_control import MAX_PARTITIONS

UUID = bytes(range(16))


@message(key=601, versions="0-2", flexible="1+")
class NumbersRequest(Request["NumbersResponse"]):
    truth: Boolean
    tiny: Int8
    small: Int16
    plain: Int32
    big: Int64
    port: UInt16
    unsigned: UInt32
    real: Float64
    id: Uuid


@message(key=601, versions="0-2", flexible="1+")
class NumbersResponse:
    truths: list[Boolean]
    tinies: list[Int8]
    bigs: list[Int64] | None
    ids: list[Uuid]


@message(key=602, versions="0-1", flexible="1+")
class Texts:
    """Version 0 has the old lengths, version 1 the compact ones."""

    name: String
    nickname: String | None
    data: Bytes
    more: Bytes | None
    aliases: list[String]


@message(key=603, versions="0-3", flexible="2+")
class Versioned:
    always: Int32
    old: Int32 = field("0-1", default=5)
    new: String = field("1+", default="n")
    dropped: String | None = field("3+", default=None, ignorable=True)
    nullable_later: String | None = field("0+", nullable="3+")
    items: list[Item] = field("1+", factory=list)
    child: Item = field("3+", factory=lambda: Item(number=0))


@struct
class Item:
    number: Int32
    extra: Int16 = field("2+", default=-1, ignorable=True)


@message(key=604, versions="0-3", flexible="1+")
class Tagged:
    name: String
    count: Int32 = field("2+", default=-1, tag=1, ignorable=True)
    item: Item | None = field("1+", default=None, tag=4)
    whole: Item = field("1+", factory=lambda: Item(number=0), tag=3)
    items: list[Item] = field("1+", factory=list, tag=0)
    moved: Int16 = field("0+", default=9, tag=2, tagged="3+")


@message(key=605, versions="0-1", flexible="1+")
class Nested:
    parts: list[Part] | None


@struct
class Part:
    item: Item | None
    grid: list[Cell]
    records: Records | None


@struct
class Cell:
    names: list[String]
    number: Int32


@message(key=606, versions="0", flexible="0+")
class Flags:
    flags: list[Flag]


@struct
class Flag:
    on: Boolean


class FileRegion:
    """Stands for bytes in a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def round_trip(value: Any, version: int) -> Any:
    encoded = encode_bytes(value, version)
    decoded, end = decode(type(value), version, encoded + b"more")
    assert end == len(encoded)
    return decoded


def numbers(**values: Any) -> NumbersRequest:
    zeros: dict[str, Any] = {"truth": False, "tiny": 0, "small": 0, "plain": 0, "big": 0}
    return NumbersRequest(**(zeros | {"port": 0, "unsigned": 0, "real": 0.0, "id": NO_UUID} | values))


def texts(**values: Any) -> Texts:
    return Texts(**({"name": "", "nickname": None, "data": b"", "more": None, "aliases": []} | values))


# --- Every type, as bytes ---


def test_numbers_are_big_endian_and_side_by_side() -> None:
    value = numbers(truth=True, tiny=-2, small=-3, plain=4, big=5, port=0xFFFE, unsigned=0xFFFFFFFD, real=1.5, id=UUID)
    plain = b"\x01\xfe\xff\xfd\0\0\0\x04" + bytes(7) + b"\x05\xff\xfe\xff\xff\xff\xfd" + b"\x3f\xf8" + bytes(6) + UUID
    assert encode_bytes(value, 0) == plain
    assert encode_bytes(value, 1) == plain + b"\0"
    assert round_trip(value, 0) == round_trip(value, 1) == value


def test_any_byte_but_zero_is_true() -> None:
    flags, _ = decode(Flags, 0, b"\x04\x00\x00\x01\x00\xff\x00\x00")
    assert [each.on for each in flags.flags] == [False, True, True]


def test_arrays_of_numbers() -> None:
    value = NumbersResponse(truths=[True, False], tinies=[1, -1], bigs=[2**40], ids=[UUID, NO_UUID])
    for version in (0, 1):
        assert round_trip(value, version) == value
    assert encode_bytes(NumbersResponse(truths=[], tinies=[], bigs=None, ids=[]), 1) == b"\1\1\0\1\0"


def test_lengths_are_old_or_compact() -> None:
    value = texts(name="ab", data=b"c", aliases=["d"])
    assert encode_bytes(value, 0) == b"\0\2ab\xff\xff\0\0\0\1c\xff\xff\xff\xff\0\0\0\1\0\1d"
    assert encode_bytes(value, 1) == b"\3ab\0\2c\0\2\2d\0"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16382, 16383, 32767])
def test_lengths_of_every_size(version: int, size: int) -> None:
    value = texts(name="x" * size, nickname="y" * size, data=b"z" * size, more=b"w" * size, aliases=["v"] * size)
    assert round_trip(value, version) == value


def test_strings_are_utf8() -> None:
    value = texts(name="Grüße", nickname="日本", aliases=["🜁"])
    assert round_trip(value, 0) == round_trip(value, 1) == value


# --- Versions ---


def test_a_field_reads_as_its_default_in_versions_without_it() -> None:
    old, _ = decode(Versioned, 0, b"\0\0\0\1\0\0\0\2\0\1x")
    assert old == Versioned(always=1, old=2, nullable_later="x")
    assert (old.new, old.items, old.child) == ("n", [], Item(number=0))


def test_objects_do_not_share_the_defaults_they_were_read_with() -> None:
    one, other = (decode(Versioned, 0, b"\0\0\0\1\0\0\0\2\0\1x")[0] for _ in range(2))
    assert one.items is not other.items
    assert one.child is not other.child


def test_a_field_that_would_be_lost_is_not_written_silently() -> None:
    with pytest.raises(ValueError, match=r"Versioned\.new cannot be written in version 0: 'lost'"):
        encode(Versioned(always=1, nullable_later="", new="lost"), 0)
    with pytest.raises(ValueError, match=r"Versioned\.items"):
        encode(Versioned(always=1, nullable_later="", items=[Item(number=1)]), 0)
    with pytest.raises(ValueError, match=r"Versioned\.child"):
        encode(Versioned(always=1, nullable_later="", child=Item(number=1)), 2)
    with pytest.raises(ValueError, match=r"Versioned\.old"):
        encode(Versioned(always=1, nullable_later="", old=6), 2)


def test_an_ignorable_field_is_dropped_in_versions_without_it() -> None:
    value = Versioned(always=1, nullable_later="", dropped="d", items=[Item(number=3, extra=4)])
    assert round_trip(value, 1) == Versioned(always=1, nullable_later="", items=[Item(number=3)])


def test_a_version_the_class_does_not_have_is_refused() -> None:
    with pytest.raises(WireError, match="has the versions 0-3, not 4"):
        decode(Versioned, 4, b"")
    with pytest.raises(ValueError, match="has the versions 0-3, not 4"):
        encode(Versioned(always=1, nullable_later=""), 4)


# --- Null ---


def test_null_is_refused_by_the_reader_where_the_version_forbids_it() -> None:
    assert decode(Versioned, 3, b"\0\0\0\1\1\0\0\1" + b"\0\0\0\0\xff\xff\0" + b"\0")[0].nullable_later is None
    for version, bytes_ in (
        (2, b"\0\0\0\1\1\0\1\0"),
        (0, b"\0\0\0\1\0\0\0\2\xff\xff"),
        (1, b"\0\0\0\1\0\0\0\2\xff\xff"),
    ):
        with pytest.raises(WireError, match=r"null, which version|length -1"):
            decode(Versioned, version, bytes_)


def test_null_is_refused_by_the_writer_where_the_version_forbids_it() -> None:
    for version in (0, 2):
        with pytest.raises(ValueError, match=f"nullable_later is None, which version {version} does not allow"):
            encode(Versioned(always=1, nullable_later=None), version)
    with pytest.raises(ValueError, match="name is None"):
        encode(texts(name=None), 1)
    with pytest.raises(ValueError, match="aliases is None"):
        encode(texts(aliases=None), 0)
    with pytest.raises(ValueError, match="required argument is not an integer"):
        encode(numbers(plain=None), 0)


@pytest.mark.parametrize("bytes_", [b"\0\0\xff\xfe", b"\0\0\xff\xff\xff\xff\xff\xff", b"\x80\x00"])
def test_negative_lengths_are_refused_unless_they_are_null(bytes_: bytes) -> None:
    with pytest.raises(WireError, match="has the length -"):
        decode(Texts, 0, bytes_)


@pytest.mark.parametrize("version", [0, 1])
def test_nested_and_nullable_parts(version: int) -> None:
    cells = [Cell(names=["a", "b"], number=1), Cell(names=[], number=2)]
    value = Nested(parts=[Part(item=Item(number=7), grid=cells, records=None), Part(item=None, grid=[], records=None)])
    assert round_trip(value, version) == value
    assert round_trip(Nested(parts=None), version) == Nested(parts=None)
    assert round_trip(Nested(parts=[]), version) == Nested(parts=[])


def test_a_nullable_struct_begins_with_a_byte_that_is_negative_for_null() -> None:
    assert encode_bytes(Nested(parts=[Part(item=None, grid=[], records=None)]), 1) == b"\2\xff\1\0\0\0"
    present = Nested(parts=[Part(item=Item(number=7), grid=[], records=None)])
    assert encode_bytes(present, 1) == b"\2\1\0\0\0\7\0\1\0\0\0"


# --- Tagged fields ---


def test_tagged_fields_at_their_defaults_are_not_written() -> None:
    assert encode_bytes(Tagged(name="a"), 3) == b"\2a\0"


def test_tagged_fields_are_written_in_ascending_order() -> None:
    value = Tagged(name="", count=5, item=Item(number=2), whole=Item(number=3), items=[Item(number=1)], moved=8)
    tags = [
        b"\0\x08\2\0\0\0\1\xff\xff\0",
        b"\1\4\0\0\0\5",
        b"\2\2\0\x08",
        b"\3\7\0\0\0\3\xff\xff\0",
        b"\4\x08\1\0\0\0\2\xff\xff\0",
    ]
    assert encode_bytes(value, 3) == b"\1\5" + b"".join(tags)
    assert round_trip(value, 3) == value


def test_a_field_may_be_tagged_in_some_versions_and_plain_in_others() -> None:
    assert encode_bytes(Tagged(name="", moved=8), 0) == b"\0\0\0\x08"
    assert encode_bytes(Tagged(name="", moved=8), 2) == b"\1\0\x08\0"
    assert encode_bytes(Tagged(name="", moved=8), 3) == b"\1\1\2\2\0\x08"


def test_unknown_tags_are_skipped_in_every_struct() -> None:
    assert decode(Tagged, 3, b"\1\3\1\4\0\0\0\5\2\2\0\x08\x63\3abc") == (Tagged(name="", count=5, moved=8), 17)
    assert decode(Flags, 0, b"\2\1\1\7\2ab\1\x09\0") == (Flags(flags=[Flag(on=True)]), 10)


def test_a_tag_of_a_later_version_is_unknown_in_an_earlier_one() -> None:
    assert decode(Tagged, 1, b"\1\0\x09\1\1\4\0\0\0\5")[0] == Tagged(name="")


@pytest.mark.parametrize("tags", [b"\2\1\4\0\0\0\5\1\4\0\0\0\5", b"\2\2\2\0\x08\1\4\0\0\0\5"])
def test_duplicate_or_descending_tags_are_refused(tags: bytes) -> None:
    with pytest.raises(WireError, match="comes after tag"):
        decode(Tagged, 3, b"\1" + tags)


@pytest.mark.parametrize("tags", [b"\1\1\5\0\0\0\5\0", b"\1\1\3\0\0\0\5", b"\1\1\0\0\0\0\5"])
def test_a_known_tag_must_have_the_size_of_its_value(tags: bytes) -> None:
    with pytest.raises(WireError, match="count does not fill its tag"):
        decode(Tagged, 3, b"\1" + tags)


def test_an_unreasonable_number_of_tags_ends_with_the_bytes() -> None:
    with pytest.raises(WireError):
        decode(Tagged, 3, b"\1\xff\xff\xff\xff\x0f\x07\x00")


# --- Records ---


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    encoded = bytearray(encode_bytes(Nested(parts=[Part(item=None, grid=[], records=b"r" * 200)]), version))
    value, _ = decode(Nested, version, encoded)
    assert value.parts is not None
    records = value.parts[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * 200
    records[0] = ord("R")
    assert b"Rr" in encoded


def test_records_pass_through_the_writer_uncopied() -> None:
    inputs: list[Any] = [b"bytes", memoryview(b"view"), FileRegion(300), b""]
    value = Nested(parts=[Part(item=None, grid=[], records=records) for records in inputs])
    chunks = encode(value, 1)
    assert [chunk for chunk in chunks if any(chunk is records for records in inputs)] == inputs[:3]
    between = chunks[0::2]
    assert between == [b"\5\xff\1\6", b"\0\xff\1\5", b"\0\xff\1\xad\2", b"\0\xff\1\1\0\0"]


def test_bytes_are_a_copy() -> None:
    frame = bytearray(encode_bytes(texts(data=b"data"), 1))
    value, _ = decode(Texts, 1, frame)
    frame[:] = bytes(len(frame))
    assert type(value.data) is bytes
    assert value.data == b"data"


# --- Broken bytes ---


@pytest.mark.parametrize("version", [0, 1])
def test_every_truncation_is_refused(version: int) -> None:
    cells = [Cell(names=["a", "b" * 130], number=1)]
    value = Nested(parts=[Part(item=Item(number=7), grid=cells, records=b"r" * 140)] * 2)
    encoded = encode_bytes(value, version)
    for size in range(len(encoded)):
        with pytest.raises(WireError):
            decode(Nested, version, encoded[:size])


def test_bytes_left_over_are_tolerated() -> None:
    assert decode(Tagged, 3, b"\2a\0" + b"\0\0\0") == (Tagged(name="a"), 3)


def test_a_message_may_begin_anywhere() -> None:
    assert decode(Tagged, 3, b"header\2a\0", 6) == (Tagged(name="a"), 9)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="not UTF-8"):
        decode(Tagged, 3, b"\3\xc3\x28\0")


def test_a_string_longer_than_kafka_allows_is_refused() -> None:
    with pytest.raises(WireError, match="too many for a string"):
        decode(Tagged, 3, b"\x81\x80\x02" + b"x" * 32768 + b"\0")


@pytest.mark.parametrize(
    ("cls", "version", "bytes_"),
    [
        (Flags, 0, b"\xff\xff\xff\xff\x0f" + bytes(1000)),
        (Nested, 0, b"\x7f\xff\xff\xff" + bytes(1000)),
        (NumbersResponse, 1, b"\1\1\x80\x01" + bytes(8 * 127 - 1)),
    ],
)
def test_a_count_beyond_what_the_bytes_can_hold_is_refused(cls: type, version: int, bytes_: bytes) -> None:
    with pytest.raises(WireError, match="elements, more than there are bytes"):
        decode(cls, version, bytes_)


def test_the_smallest_size_of_an_element_is_known() -> None:
    assert minimal_bytes(StructOf(Part), 1, flexible=True) == 1 + 1 + 1 + 1
    assert minimal_bytes(StructOf(Part), 0, flexible=False) == 1 + 4 + 4
    assert minimal_bytes(StructOf(Item), 1, flexible=True) == 4 + 1
    assert minimal_bytes(StructOf(Tagged), 3, flexible=True) == 1 + 1


def array_of_bytes(count: int) -> bytes:
    return b"\0\0\0\0" + count.to_bytes(4, "big") + bytes(count) + b"\0\0\0\0" * 2


def test_more_elements_than_the_budget_are_refused_however_small_they_are() -> None:
    assert MAX_HEAP_BYTES == MAX_ELEMENTS * MIN_ELEMENT_HEAP_BYTES
    assert len(decode(NumbersResponse, 0, array_of_bytes(200_000))[0].tinies) == 200_000
    with pytest.raises(WireError, match="tinies makes the message too expensive"):
        decode(NumbersResponse, 0, array_of_bytes(MAX_ELEMENTS + 1))


def test_a_request_has_fewer_elements_than_a_response() -> None:
    most = MAX_HEAP_BYTES // MIN_REQUEST_ELEMENT_HEAP_BYTES
    assert len(decode(DeleteGroupsRequest, 0, group_names(most))[0].groups_names) == most
    with pytest.raises(WireError, match="groups_names makes the message too expensive"):
        decode(DeleteGroupsRequest, 0, group_names(most + 1))
    assert decode(NumbersResponse, 0, array_of_bytes(most + 1))


def group_names(count: int) -> bytes:
    """A DeleteGroupsRequest whose names are so long that only their number counts."""
    return count.to_bytes(4, "big") + (b"\0\x40" + b"x" * 64) * count


def test_tagged_fields_are_charged_as_elements_are() -> None:
    topics = 600
    assert decode(OffsetCommitRequest, 9, commit_with_tags(topics))
    assert (topics + 200) * MAX_TAGS * MIN_REQUEST_ELEMENT_HEAP_BYTES > BASE_HEAP_BYTES
    with pytest.raises(WireError, match="OffsetCommitRequestTopic has tagged fields that make the message too"):
        decode(OffsetCommitRequest, 9, commit_with_tags(topics + 200))


def commit_with_tags(topics: int) -> bytes:
    """A request of so many topics, each with as many tagged fields as a struct may have."""
    dense = dense_messages(OffsetCommitRequest, 9, MAX_TAGS, topics)
    return next(each.data for each in dense if each.construct == "topics.tags")


def test_the_budget_is_one_for_all_arrays_of_a_message() -> None:
    part = Part(item=None, grid=[Cell(names=["x"] * 30_000, number=1)] * 4, records=None)
    encoded = encode_bytes(Nested(parts=[part]), 1)
    assert decode(Nested, 1, encoded)[0].parts == [part]
    encoded = encode_bytes(Nested(parts=[part] * 4), 1)
    with pytest.raises(WireError, match="too expensive"):
        decode(Nested, 1, encoded)


def test_as_many_partitions_as_honest_requests_name_are_within_the_budget() -> None:
    value = Flags(flags=[Flag(on=True)] * 50_000)
    assert round_trip(value, 0) == value
    assert BASE_HEAP_BYTES < MAX_HEAP_BYTES


@given(st.sampled_from([Versioned, Tagged, Nested, Texts, NumbersRequest, NumbersResponse, Flags]), st.binary())
def test_nothing_but_wire_errors_comes_from_decoding_noise(cls: Any, noise: bytes) -> None:
    for version in range(cls.VERSIONS.high + 1):
        with contextlib.suppress(WireError):
            _, end = decode(cls, version, noise)
            assert end <= len(noise)


@given(st.data())
def test_nothing_but_wire_errors_comes_from_decoding_broken_messages(data: st.DataObject) -> None:
    version = data.draw(st.integers(0, 1))
    cells = [Cell(names=["a", "b"], number=1), Cell(names=[], number=2)]
    whole = encode_bytes(Nested(parts=[Part(item=Item(number=7), grid=cells, records=b"rrr")] * 2), version)
    broken = bytearray(whole)
    for position in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        broken[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode(Nested, version, broken)


# --- Values that do not fit ---


@pytest.mark.parametrize(
    "values",
    [
        {"tiny": 128},
        {"small": -(2**15) - 1},
        {"plain": 2**31},
        {"big": 2**63},
        {"port": -1},
        {"unsigned": 2**32},
        {"id": b"short"},
        {"id": bytes(17)},
        {"id": None},
        {"plain": "1"},
    ],
)
def test_a_number_or_uuid_that_does_not_fit_is_refused(values: dict[str, Any]) -> None:
    for version in (0, 1):
        with pytest.raises(ValueError, match="NumbersRequest"):
            encode(numbers(**values), version)


@pytest.mark.parametrize("version", [0, 1])
def test_a_string_that_does_not_fit_is_refused(version: int) -> None:
    for values in ({"name": "x" * 32768}, {"aliases": ["x" * 32768]}, {"nickname": "\ud800"}):
        with pytest.raises(ValueError, match=r"32768|32767|surrogates"):
            encode(texts(**values), version)


def test_a_uuid_of_another_size_in_an_array_is_refused() -> None:
    with pytest.raises(ValueError, match="uuid of another size"):
        encode(NumbersResponse(truths=[], tinies=[], bigs=None, ids=[UUID, b""]), 1)


def test_error_codes_may_stand_for_their_numbers() -> None:
    assert round_trip(numbers(small=ErrorCode.NOT_COORDINATOR), 1).small == 16


# --- What is generated ---


def test_tracebacks_show_the_generated_line() -> None:
    try:
        encode(Versioned(always=1, nullable_later=None), 2)
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
    assert "raise ValueError('Versioned.nullable_later is None, which version 2 does not allow')" in shown
    linecache.checkcache()
    assert "def write_Versioned_v2(message):" in source_of(writer(Versioned, 2))


def test_neighbours_of_fixed_size_are_read_and_written_at_once() -> None:
    assert source_of(reader(NumbersRequest, 0)).count("unpack_") == 1
    assert source_of(writer(NumbersRequest, 1)).count("pack_tbhiqHId16sx") == 1


def test_functions_are_compiled_once() -> None:
    assert reader(Tagged, 1) is reader(Tagged, 1)
    assert writer(Tagged, 1) is writer(Tagged, 1)


def test_a_tagged_field_in_a_version_without_tags_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="not flexible but has tagged fields"):
        reader(TagTooEarly, 0)
    with pytest.raises(TypeError, match="not flexible but has tagged fields"):
        writer(TagTooEarly, 0)


def test_a_number_cannot_be_nullable() -> None:
    with pytest.raises(TypeError, match="int32 cannot be null"):
        reader(NullNumber, 0)


@message(versions="0", flexible="none")
class TagTooEarly:
    number: Int32 = field(default=0, tag=0)


@message(versions="0", flexible="none")
class NullNumber:
    number: Int32 | None


def commit_of(topics: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    named = [OffsetCommitRequestTopic(name=f"topic-{index}", partitions=[partition]) for index in range(topics)]
    return OffsetCommitRequest(group_id="group", member_id="", topics=named)


def list_offsets_of(topics: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    named = [ListOffsetsTopic(name=f"topic-{index}", partitions=[partition]) for index in range(topics)]
    return ListOffsetsRequest(replica_id=-1, topics=named)


def fetch_of(topics: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    named = [FetchTopic(topic_id=UUID, partitions=[partition]) for _ in range(topics)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=named)


def describe_groups_of(groups: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[f"a-group-with-a-name-{index:06}" for index in range(groups)])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (commit_of(MAX_PARTITIONS), 9),
        (list_offsets_of(MAX_PARTITIONS), 9),
        (fetch_of(MAX_PARTITIONS), 13),
        (describe_groups_of(100_000), 5),
    ],
    ids=["OffsetCommit", "ListOffsets", "Fetch", "DescribeGroups"],
)
def test_a_request_about_all_that_a_full_broker_has_is_taken(request_: Any, version: int) -> None:
    """Each partition in a topic of its own. Kafka takes a million elements in each array."""
    assert round_trip(request_, version) == request_
