"""Two codecs that were not written here read our bytes and write them again, byte for byte.

kio knows every message of Kafka 4.3, kafka-python all but those of KIP-848, of delegation tokens and between brokers.
kafka-python uses Kafka's names for the fields, so its values are compared one by one as well; kio has names and types
of its own. What they write is what we wrote, so that reading their bytes is reading ours, which the round trips cover.
"""

from __future__ import annotations

import functools
import importlib
import io
import uuid
import warnings
from typing import Any

import attrs
import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafka_wire.codec import encode_bytes
from kafka_wire.messages.api_versions import ApiVersionsResponse
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateResponse
from kafka_wire.schema import Request, fields_of
from tests.protocol.message_strategies import check_versions, message_kinds

EVERY_MESSAGE = message_kinds()

KAFKA_PYTHON_AREAS = ("admin", "consumer", "metadata", "producer", "sasl")

NOT_IN_KAFKA_PYTHON = {
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    56: "AlterPartition",
    58: "Envelope",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    73: "AssignReplicasToDirs",
}
"""By API key; it has no delegation tokens, nothing that only brokers send, takes no broker out of a cluster, and has no
consumer of the KIP-848 protocol."""

NEW_IN_4_4 = {18: 5, 28: 6, 42: 3}
"""By API key the version that neither of the two knows yet: ApiVersions, TxnOffsetCommit, DeleteGroups."""

KAFKA_PYTHON_MESSAGES = [kind for kind in EVERY_MESSAGE if kind.API_KEY not in NOT_IN_KAFKA_PYTHON]

BIT_FIELDS = {"topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"}
"""kafka-python turns these into sets of names, under one name for all three; their bytes are compared all the same."""

FORMER_NAMES = {"generation_id_or_member_epoch": "generation_id"}
"""What kafka-python calls a field that Kafka 4.4 has renamed in TxnOffsetCommit."""

NO_ID = bytes(16)
NO_UUID = uuid.UUID(bytes=NO_ID)
"""Where a field may be null, kafka-python takes it for null."""


def named(kind: type[Any]) -> str:
    return kind.__name__


@pytest.mark.parametrize("kind", EVERY_MESSAGE, ids=named)
def test_kio_reads_our_bytes_and_writes_the_same(kind: type[Any]) -> None:
    load_schema = load_request_schema if issubclass(kind, Request) else load_response_schema

    def agrees(version: int, message: Any) -> None:
        if version == NEW_IN_4_4.get(kind.API_KEY):
            return
        if isinstance(message, SaslAuthenticateResponse):
            # It takes times for floating numbers of seconds, which are exact for as long as a session may be.
            message.session_lifetime_ms %= 2**31
        ours = encode_bytes(message, version)
        schema = load_schema(kind.API_KEY, version)
        entity, end = entity_reader(schema)(ours, 0)
        written = io.BytesIO()
        entity_writer(schema)(written, entity)
        assert end == len(ours)
        assert written.getvalue() == ours

    check_versions(kind, agrees)


@functools.cache
def kafka_python_classes() -> dict[str, Any]:
    """Return the message classes of kafka-python by Kafka's names for them, wherever it keeps them."""
    with warnings.catch_warnings():
        # It reads its schemas, at import, in a way that newer Pythons advise against.
        warnings.simplefilter("ignore", DeprecationWarning)
        areas = [importlib.import_module(f"kafka.protocol.{area}") for area in KAFKA_PYTHON_AREAS]
    return {name: value for area in areas for name, value in vars(area).items()}


@pytest.mark.parametrize("kind", KAFKA_PYTHON_MESSAGES, ids=named)
def test_kafka_python_reads_what_we_meant_and_writes_the_same(kind: type[Any]) -> None:
    theirs = kafka_python_classes()[kind.__name__]

    def agrees(version: int, message: Any) -> None:
        if version == NEW_IN_4_4.get(kind.API_KEY):
            return
        if kind is ApiVersionsResponse:
            # Beside an error a client reads this answer as version 0, whatever it asked for (KIP-511).
            message.error_code = 0
        ours = encode_bytes(message, version)
        read = theirs.decode(ours, version=version)
        assert_same_fields(message, read, version)
        read._header = None
        assert bytes(read.encode(version=version)) == ours

    check_versions(kind, agrees)


@pytest.mark.parametrize(("api_key", "version"), NEW_IN_4_4.items())
def test_kio_lacks_the_versions_that_it_is_not_asked_for(api_key: int, version: int) -> None:
    with pytest.raises(Exception, match=r"."):
        load_request_schema(api_key, version)


def test_kafka_python_lacks_what_we_do_not_ask_it_for() -> None:
    assert not {f"{name}Request" for name in NOT_IN_KAFKA_PYTHON.values()} & set(kafka_python_classes())


def assert_same_fields(ours: Any, theirs: Any, version: int) -> None:
    """Check that both say the same in every field that ``version`` has, by Kafka's names."""
    for field in fields_of(type(ours)):
        if version not in field.versions or field.name in BIT_FIELDS:
            continue
        theirs_name = field.name if hasattr(theirs, field.name) else FORMER_NAMES[field.name]
        mine, yours = getattr(ours, field.name), getattr(theirs, theirs_name)
        if yours is None and version in field.tagged:
            assert mine is None or mine == field.new_default(), "only a default is left out"
        else:
            assert_same_value(mine, yours, version)


def assert_same_value(mine: Any, yours: Any, version: int) -> None:
    if attrs.has(type(mine)):
        assert_same_fields(mine, yours, version)
    elif isinstance(mine, list):
        for one, other in zip(mine, yours, strict=True):
            assert_same_value(one, other, version)
    elif mine == NO_ID:
        assert yours in (None, NO_UUID)
    else:
        # kafka-python has uuids as objects, which know their bytes.
        assert mine == getattr(yours, "bytes", yours)
