"""How the input of ``produce`` is cut into pieces, and what becomes of a piece."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.cli import record_input
from trio_broker.cli.record_input import JsonParser, PieceParser, pieces
from trio_broker.client.producer.record_producer import ProducerRecord


class Trickle(io.BufferedIOBase):
    """Gives its data in chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [chunk for chunk in chunks if chunk]

    def read1(self, size: int = -1) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


@given(
    st.lists(st.text(alphabet="ab;|", max_size=5).map(str.encode), max_size=8),
    st.sampled_from([b";", b";|", b"aba", b"\n"]),
)
def test_pieces_do_not_depend_on_how_the_input_arrives(chunks: list[bytes], delimiter: bytes):
    whole = b"".join(chunks)
    expected = whole.split(delimiter)
    if not expected[-1]:
        expected.pop()
    assert list(pieces(Trickle(chunks), delimiter)) == expected


def test_without_a_delimiter_all_is_one_piece():
    assert list(pieces(Trickle([b"a\n", b"b"]), None)) == [b"a\nb"]
    assert list(pieces(Trickle([]), None)) == [b""]


def test_a_pause_of_the_input_is_reported():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as out:
        got = pieces(stream, b"\n")
        assert next(got) is None
        out.write(b"one\ntwo\nhal")
        assert [next(got) for _ in range(3)] == [b"one", b"two", None]
        out.write(b"f\n")
        assert [next(got) for _ in range(2)] == [b"half", None]
        out.close()
        assert list(got) == []


def test_a_piece_that_no_request_has_room_for_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record_input, "DEFAULT_REQUEST_BYTES", 10)
    got = pieces(Trickle([b"short\n", b"longer than", b" ten"]), b"\n")
    assert next(got) == b"short"
    with pytest.raises(ValueError, match="it is longer than 10 bytes"):
        next(got)


def plain(**changes: Any) -> PieceParser:
    settings = {"key_separator": None, "key": None, "headers": (), "partition": None, "null_values": False}
    return PieceParser(**{**settings, **changes})


@pytest.mark.parametrize(
    ("parser", "piece", "record"),
    [
        (plain(), b"v", ProducerRecord(None, b"v")),
        (plain(), b"", ProducerRecord(None, b"")),
        (plain(null_values=True), b"", ProducerRecord(None, None)),
        (plain(key_separator=b":"), b"k:v:w", ProducerRecord(b"k", b"v:w")),
        (plain(key_separator=b":"), b":v", ProducerRecord(b"", b"v")),
        (plain(key_separator=b":"), b"v", ProducerRecord(None, b"v")),
        (plain(key_separator=b":", key=b"d"), b"v", ProducerRecord(b"d", b"v")),
        (plain(key_separator=b":", null_values=True), b"k:", ProducerRecord(b"k", None)),
        (plain(headers=(("h", b"1"),), partition=2), b"v", ProducerRecord(None, b"v", (("h", b"1"),), 2)),
    ],
)
def test_a_piece_becomes_a_record(parser: PieceParser, piece: bytes, record: ProducerRecord):
    assert parser(piece) == record


LINE = b'{"value": "v", "partition": 1, "headers": [{"key": "a", "value": "1"}]}'


@pytest.mark.parametrize(
    ("parser", "record"),
    [
        (JsonParser((), None, False), ProducerRecord(None, b"v", (("a", b"1"),), 1)),
        (JsonParser((("b", None),), 5, False), ProducerRecord(None, b"v", (("a", b"1"), ("b", None)), 5)),
        (JsonParser((), None, True), ProducerRecord(None, b"v", (("a", b"1"),), None)),
    ],
)
def test_a_line_of_json_becomes_a_record(parser: JsonParser, record: ProducerRecord):
    assert parser(LINE) == record
    assert parser(b" ") is None
