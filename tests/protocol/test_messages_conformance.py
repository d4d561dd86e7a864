"""Our declarations say what Kafka's own schemas say: every message, every version, every field, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from kafka_wire.messages.catalogue import MESSAGE_FILES, all_requests
from kafka_wire.schema import ArrayOf, StructOf, VersionRange, fields_of, parse_versions
from kafka_wire.stored.groups import GROUP_RECORDS, UNKEPT_GROUP_KEYS
from kafka_wire.stored.metadata import METADATA_RECORDS
from kafka_wire.stored.transactions import TransactionLogKey, TransactionLogValue
from tests.protocol.kafka_schemas import PresentField, kafka_view, load_schema, our_view

MESSAGES = [kind for request in all_requests().values() for kind in (request, request.RESPONSE)]

STORED = {
    **dict.fromkeys(METADATA_RECORDS, "metadata-common-metadata"),
    **{kind: "group-coordinator-common-message" for pair in GROUP_RECORDS for kind in pair},
    **dict.fromkeys(UNKEPT_GROUP_KEYS, "group-coordinator-common-message"),
    **dict.fromkeys((TransactionLogKey, TransactionLogValue), "transaction-coordinator-common-message"),
}
"""Every stored record, with the folder of its schema."""

SCHEMA_NAMES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}
"""The one record whose schema is in a file of another name."""

RECORDS_DEFAULT = "records"
"""Kafka's default for records is null in Java and never reaches the wire; every message gives its records."""


def schema_of(kind: type[Any], kafka_messages: Path) -> dict[str, Any]:
    folder = STORED.get(kind, "clients-common-message")
    return load_schema(kafka_messages / folder / f"{SCHEMA_NAMES.get(kind.__name__, kind.__name__)}.json")


def served_versions(kind: type[Any], kafka_messages: Path) -> VersionRange:
    """Return the versions Kafka has for ``kind``, less a newest one that its request marks unstable."""
    versions = parse_versions(schema_of(kind, kafka_messages)["validVersions"])
    if kind in STORED:
        return versions
    unstable = schema_of(all_requests()[kind.API_KEY], kafka_messages).get("latestVersionUnstable", False)
    return VersionRange(versions.low, versions.high - bool(unstable))


def flexible_from(schema: dict[str, Any], served: VersionRange) -> int | None:
    versions = parse_versions(schema["flexibleVersions"])
    return versions.low if versions and versions.low <= served.high else None


def without_records_default(view: Any) -> Any:
    """Return ``view`` with the default of records fields left out of the comparison."""
    if isinstance(view, PresentField):
        default = None if view.type == RECORDS_DEFAULT else view.default
        return attrs.evolve(view, type=without_records_default(view.type), default=default)
    if isinstance(view, list | tuple):
        return type(view)(without_records_default(part) for part in view)
    return view


def test_every_record_of_kafkas_metadata_is_declared(kafka_messages: Path) -> None:
    """An import has to know each of them: one that it cannot read is a log that it cannot take over."""
    declared = {SCHEMA_NAMES.get(kind.__name__, kind.__name__) for kind in METADATA_RECORDS}
    assert {path.stem for path in (kafka_messages / "metadata-common-metadata").glob("*.json")} == declared


@pytest.mark.parametrize("kind", [*MESSAGES, *STORED], ids=lambda kind: kind.__name__)
def test_key_and_versions_are_kafkas(kind: type[Any], kafka_messages: Path) -> None:
    schema = schema_of(kind, kafka_messages)
    served = served_versions(kind, kafka_messages)
    assert schema["apiKey"] == kind.API_KEY
    assert served == kind.VERSIONS
    assert flexible_from(schema, served) == kind.FLEXIBLE_FROM


@pytest.mark.parametrize("kind", [*MESSAGES, *STORED], ids=lambda kind: kind.__name__)
def test_every_version_has_kafkas_fields_and_no_others(kind: type[Any], kafka_messages: Path) -> None:
    """Names, order, types, null, tags and defaults; and for the fields of other versions, default and ignorability."""
    schema = schema_of(kind, kafka_messages)
    served = served_versions(kind, kafka_messages)
    for version in range(served.low, served.high + 1):
        ours = without_records_default(our_view(kind, version, served))
        kafkas = without_records_default(kafka_view(schema, version, served))
        assert ours == kafkas, f"version {version}"


def test_every_api_of_the_first_tier_is_there() -> None:
    produce_to_describe_topic_partitions = {
        *range(4),
        *range(8, 17),
        *range(18, 24),
        *(32, 33, 35, 37, 42, 44, 47, 60, 68, 69, 75),
    }
    assert set(all_requests()) >= produce_to_describe_topic_partitions


def test_no_two_message_files_have_one_api_key() -> None:
    assert len(all_requests()) == len(MESSAGE_FILES)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_request_and_response_agree_on_key_and_versions(kind: type[Any]) -> None:
    request = all_requests()[kind.API_KEY]
    assert kind.VERSIONS == request.VERSIONS
    assert request.RESPONSE.VERSIONS == request.VERSIONS


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_throttle_time_and_error_code_need_not_be_given(kind: type[Any]) -> None:
    """They are zero in nearly every answer, so that a handler need not repeat it."""
    for cls in structs_of(kind):
        for attribute in attrs.fields(cls):
            if attribute.name in {"throttle_time_ms", "error_code"}:
                assert attribute.default == 0, cls.__name__


def structs_of(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield a declared class and every struct in it."""
    yield cls
    for field in fields_of(cls):
        match field.type:
            case StructOf(inner) | ArrayOf(StructOf(inner)):
                yield from structs_of(inner)
