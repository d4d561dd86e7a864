"""Where a broker listens, as people write it."""

from __future__ import annotations

import pytest

from trio_broker.client.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9093", Address("kafka", 9093)),
        ("kafka", Address("kafka", 9092)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("[::1]:9094", Address("::1", 9094)),
        ("[::1]", Address("::1", 9092)),
        ("PLAINTEXT://kafka:9093", Address("kafka", 9093)),
        ("plaintext://kafka:9093", Address("kafka", 9093)),
    ],
)
def test_an_address_is_read_in_every_form(text: str, address: Address):
    assert parse_addresses(text) == (address,)


def test_several_addresses_keep_their_order():
    assert parse_addresses(" b:2, a:1 ,") == (Address("b", 2), Address("a", 1))


@pytest.mark.parametrize("text", ["", ",", ":9092", "a:", "a:x", "a:0", "a:65536", "a:-1", "::1", "[::1]x:1", "a:1:2"])
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_a_protocol_that_is_not_spoken_is_named():
    with pytest.raises(ValueError, match="SASL_SSL"):
        parse_addresses("SASL_SSL://kafka:9093")


@pytest.mark.parametrize("text", ["kafka:9093", "[::1]:9094"])
def test_an_address_prints_as_it_is_written(text: str):
    assert str(parse_addresses(text)[0]) == text
