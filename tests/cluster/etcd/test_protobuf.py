"""Messages are the bytes that Protocol Buffers makes of them, and garbage is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.cluster.etcd.errors import MalformedMessage
from trio_broker.cluster.etcd.messages import (
    KeyValue,
    LeaseKeepAliveResponse,
    RangeResponse,
    StatusResponse,
    TxnRequest,
    created_at,
    put,
)
from trio_broker.cluster.etcd.protobuf import decode, encode


def test_a_txn_is_the_bytes_that_etcd_reads():
    request = TxnRequest(compare=[created_at(b"k", 0)], success=[put(b"k", b"v", lease=300)])
    compare = bytes.fromhex("0a 07") + bytes.fromhex("10 01 1a 01 6b 28 00")
    success = bytes.fromhex("12 0b") + bytes.fromhex("12 09 0a 01 6b 12 01 76 18 ac 02")
    assert encode(request) == compare + success


def test_a_zero_is_absent_unless_it_is_compared():
    assert encode(KeyValue()) == b""
    assert bytes.fromhex("28 00") in encode(created_at(b"", 0))


def test_an_absent_number_is_zero():
    assert decode(LeaseKeepAliveResponse, bytes.fromhex("10 07")).ttl == 0


def test_unknown_fields_of_every_wire_type_are_skipped():
    unknown = bytes.fromhex("78 ff01 79 0102030405060708 7a 02 0000 7d 01020304")
    assert decode(KeyValue, unknown + bytes.fromhex("0a 01 6b")) == KeyValue(key=b"k")


integers = st.integers(-(2**63), 2**63 - 1)
key_values = st.builds(
    KeyValue,
    key=st.binary(),
    create_revision=integers,
    mod_revision=integers,
    version=integers,
    value=st.binary(),
    lease=integers,
)


@given(st.builds(RangeResponse, kvs=st.lists(key_values), more=st.booleans()))
def test_what_was_encoded_is_decoded(response: RangeResponse):
    assert decode(RangeResponse, encode(response)) == response


@given(st.builds(StatusResponse, version=st.text(), db_size=integers, errors=st.lists(st.text())))
def test_text_and_repeated_text_are_decoded(response: StatusResponse):
    assert decode(StatusResponse, encode(response)) == response


@given(st.binary())
def test_any_bytes_are_a_message_or_malformed(data: bytes):
    with contextlib.suppress(MalformedMessage):
        decode(RangeResponse, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("0a 05 6b", "ends 4 bytes behind"),
        ("ff ff ff ff ff ff ff ff ff ff ff", "does not end"),
        ("0b", "wire type 3"),
        ("08 01", "field 1 is a number"),
        ("12 01 6b", "field 2 is not a number"),
    ],
)
def test_what_is_wrong_is_said(data: str, message: str):
    with pytest.raises(MalformedMessage, match=message):
        decode(KeyValue, bytes.fromhex(data))
