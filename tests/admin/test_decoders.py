"""Decoders of keys and values: what they read, what is chosen by content, and that any bytes are safe."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_admin.decoders.avro import AvroSchema, SchemaError
from broker_admin.decoders.choice import DECODER_NAMES, Decoder
from broker_admin.decoders.decoded import MAX_DECODED_BYTES, MAX_ELEMENTS, Decoded


def decoded(name: str, data: bytes, schema: str | None = None) -> Decoded:
    found = Decoder(name, AvroSchema(schema) if schema is not None else None).decode(data)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("text", "Zoë\n".encode(), "Zoë\n"),
        ("text", b"a\xffb", "a\\xffb"),
        ("json", b' {"a": [1, null]} ', {"a": [1, None]}),
        ("json", b"42", 42),
        ("hex", b"\0\xff", "00ff"),
        ("base64", b"\0\xff", "AP8="),
        ("int32", b"\xff\xff\xff\xfe", -2),
        ("int64", b"\0\0\0\0\0\0\1\0", 256),
        ("double", struct.pack(">d", 1.5), 1.5),
        ("double", struct.pack(">d", float("nan")), "nan"),
        ("registry", b"\0\0\0\0\7\x02hello", {"schema_id": 7, "payload_decoder": "hex", "payload": "0268656c6c6f"}),
        ("registry", b'\0\0\0\1\0{"a":1}', {"schema_id": 256, "payload_decoder": "json", "payload": {"a": 1}}),
        # {1: 150, 2: "testing", 3: {1: 150}, 4: 1.5 as double, 1 again}
        (
            "protobuf",
            b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x25\0\0\xc0\x3f\x08\x01",
            {"1": [150, 1], "2": "testing", "3": {"1": 150}, "4": {"int": 0x3FC00000, "float": 1.5}},
        ),
        ("protobuf", b"\x12\x02\xff\xfe", {"2": "fffe"}),
    ],
)
def test_a_decoder_reads_its_format(name: str, data: bytes, value: Any) -> None:
    assert decoded(name, data) == Decoded(name, value)


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b"two\nlines\t", "text", "two\nlines\t"),
        (b"42", "text", "42"),
        (b"12345678", "text", "12345678"),
        (b'{"a":1}', "json", {"a": 1}),
        (b"[1]", "json", [1]),
        (b"{broken", "text", "{broken"),
        (b"[NaN]", "text", "[NaN]"),
        (b"\0\0\0\5", "int32", 5),
        (b"\0\0\0\0\0\0\0\5", "int64", 5),
        (b"\0\0\0\0\5abc!", "registry", {"schema_id": 5, "payload_decoder": "text", "payload": "abc!"}),
        (b"\0" * 100_000, "hex", "00" * 100_000),  # no registry gives out the id 0
        (b"\0null pointer in main", "text", "\0null pointer in main"),
        (b"\0\xff\0\0\1 end", "hex", "00ff00000120656e64"),
        (b"\x1b[31mERROR\x1b[0m disk", "text", "\x1b[31mERROR\x1b[0m disk"),
        (
            b"\0\0\0\0\7 a long text behind a prefix",
            "registry",
            {"schema_id": 7, "payload_decoder": "text", "payload": " a long text behind a prefix"},
        ),
        (b"\x08\x01\x12\x02ab", "hex", "080112026162"),
        (b"\xff\xfe\xfd", "hex", "fffefd"),
        (b"a\0b", "hex", "610062"),
    ],
)
def test_a_decoder_is_chosen_by_content(data: bytes, name: str, value: Any) -> None:
    assert decoded("auto", data) == Decoded(name, value)


@pytest.mark.parametrize("name", DECODER_NAMES)
def test_a_null_stays_a_null(name: str) -> None:
    assert Decoder(name).decode(None) is None


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("json", b'{"a": }', "no JSON: Expecting value at character 7"),
        ("json", b"[" * 100_000, "no JSON: it is none"),
        ("int32", b"12345", "5 bytes, not 4"),
        ("registry", b"\1\0\0\0\0a", "no prefix of a registry: a zero byte and four more"),
        ("protobuf", b"\x12\x09abc", "9 bytes where 3 are left"),
        ("protobuf", b"\x0b", "wire type 3 at byte 1"),
        ("protobuf", b"\x08" + b"\xff" * 11, "a number of more than 10 bytes"),
        ("protobuf", b"\x08\x01" * (MAX_ELEMENTS + 1), f"more than {MAX_ELEMENTS} elements"),
        ("json", b'"' + b"a" * MAX_DECODED_BYTES + b'"', f"1048578 bytes; at most {MAX_DECODED_BYTES} are decoded"),
        ("avro", b"abc", "Avro needs the schema"),
    ],
)
def test_what_a_decoder_cannot_read_is_shown_by_content_with_the_reason(name: str, data: bytes, problem: str) -> None:
    found = decoded(name, data)
    assert found.decoder in ("text", "hex")
    assert found.problem == problem


# ---- MessagePack ----


def test_message_pack() -> None:
    value = {
        "a": [1, 2.5, None, True, b"\xff"],
        7: "seven",
        "at": msgpack.Timestamp(3),
        "ext": msgpack.ExtType(5, b"x"),
    }
    expected = {"a": [1, 2.5, None, True, "ff"], "7": "seven", "at": 3.0, "ext": {"extension": 5, "data": "78"}}
    assert decoded("msgpack", msgpack.packb(value)) == Decoded("msgpack", expected)
    assert decoded("auto", msgpack.packb({"a": 1})) == Decoded("msgpack", {"a": 1})


@pytest.mark.parametrize(
    "data", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"\x81", b"\x01\x02", b"\x81\x80\x01"]
)
def test_damaged_message_pack_is_refused(data: bytes) -> None:
    assert decoded("msgpack", data).problem.startswith("no MessagePack")


def test_message_pack_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    assert decoded("msgpack", b"\x80").problem == "MessagePack needs the extra: pip install 'trio-broker[decoders]'"


# ---- Avro ----

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "prices", "type": {"type": "map", "values": "double"}},
            {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 2}},
            {"name": "before", "type": ["null", "Order"]},
            {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
FIRST = b"\x03" + b"\x02\x06Zoe" + b"\x02" + b"\x02\x02x\0" + b"\x01\x14\x02a\0\0\0\0\0\0\xf8\x3f\0" + b"\xab\xcd"
ENCODED = FIRST + b"\x02" + FIRST + b"\0" + b"\x02" + b"\x04"


def test_avro_by_its_schema() -> None:
    order = {"id": -2, "name": "Zoe", "state": "PAID", "tags": ["x"], "prices": {"a": 1.5}, "digest": "abcd"}
    value = order | {"before": order | {"before": None, "seen": 1}, "seen": 2}
    assert decoded("avro", ENCODED, ORDER) == Decoded("avro", value)
    assert decoded("avro", b"\0\0\0\0\7" + ENCODED, ORDER) == Decoded("avro", value)
    assert decoded("avro", b"\x06abc", "string") == Decoded("avro", "abc")


NESTED = '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}'
NULLS = '{"type": "array", "items": "null"}'


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        (ORDER, ENCODED[:-1], "1 bytes at byte 55, where 0 are left"),
        (ORDER, ENCODED + b"\0", "1 bytes left over"),
        (NESTED, b"\x02" * 1_000_000, "records nested more than 64 deep"),
        (NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0", f"more than {MAX_ELEMENTS} elements"),
        ("bytes", b"\x01", "-1 bytes at byte 1, where 0 are left"),
        ("long", b"\xff" * 20, "a number of more than 10 bytes"),
        ('["null"]', b"\x04", "branch 2 of a union of 1"),
    ],
)
def test_damaged_avro_is_refused(schema: str, data: bytes, problem: str) -> None:
    assert decoded("avro", data, schema).problem == problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strong",
        "7",
        '"strong"',
        '{"name": "x"}',
        '{"type": 7}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": 7, "fields": []}',
        '{"type": "record", "name": "R", "fields": 7}',
        '{"type": "record", "name": "R", "fields": [7]}',
        '{"type": "record", "name": "R", "namespace": 7, "fields": []}',
        '{"type": "enum", "name": "E", "symbols": 7}',
        '{"type": "fixed", "name": "F", "size": "7"}',
        '{"type": "fixed", "name": "F", "size": -7}',
        '{"type": "array"}',
        "[" * 20_000 + "]" * 20_000,
        '{"type":' * 8000 + '"int"' + "}" * 8000,
        '"' + "x" * 100_000 + '"',
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        AvroSchema(text)


# ---- any bytes ----

SCHEMAS = ["string", "bytes", NESTED, NULLS, ORDER]


@given(st.sampled_from(DECODER_NAMES), st.binary(max_size=200), st.sampled_from(SCHEMAS))
def test_any_bytes_become_json(name: str, data: bytes, schema: str) -> None:
    found = decoded(name, data, schema if name == "avro" else None)
    json.dumps(found.data, allow_nan=False)
    assert found.decoder == name or found.problem or name == "auto"
