"""Principals as bytes, behind the version of their form as an int16.

Source: Kafka's DefaultKafkaPrincipalBuilder and MessageUtil.toVersionPrefixedByteBuffer; KIP-590.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.codec import decode_whole, encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.stored.principals import DefaultPrincipalData
from kafka_wire.stored.record_frame import INT16_BYTES, leading_int16, with_int16
from trio_broker.security.kafka_principal import KafkaPrincipal

VERSION: Final = 0


def serialized_principal(principal: KafkaPrincipal) -> bytes:
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.token_authenticated
    )
    return with_int16(VERSION, encode_bytes(data, VERSION))


def deserialized_principal(data: bytes) -> KafkaPrincipal:
    """The principal in ``data``.

    Raises:
        WireError: it is none, or in a form that is not known.
    """
    if (version := leading_int16(data, "a principal")) != VERSION:
        raise WireError(f"a principal in the unknown version {version}")
    read = decode_whole(DefaultPrincipalData, VERSION, memoryview(data), INT16_BYTES)
    return KafkaPrincipal(read.type, read.name, read.token_authenticated)
