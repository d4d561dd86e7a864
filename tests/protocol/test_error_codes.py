"""kafka_wire.error_codes and kafka_wire.errors."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError


@pytest.fixture
def kafka_error_codes(kafka_messages: Path) -> dict[str, dict[str, str]]:
    """The rows of Kafka's table, by the name of the code."""
    with (kafka_messages / "error-codes.csv").open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_the_table_is_kafkas(kafka_error_codes: dict[str, dict[str, str]]) -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        name: int(row["code"]) for name, row in kafka_error_codes.items()
    }


def test_what_a_code_means_to_a_client_is_what_kafkas_java_client_does(
    kafka_error_codes: dict[str, dict[str, str]],
) -> None:
    assert {code.name: (code.is_retriable, code.invalidates_metadata) for code in ErrorCode} == {
        name: (row["retriable_in_java_client"] == "yes", row["triggers_metadata_refresh"] == "yes")
        for name, row in kafka_error_codes.items()
    }


def test_a_refusal_carries_the_code_of_its_class() -> None:
    class NotHere(KafkaError):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert NotHere("no such topic").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert str(NotHere("no such topic")) == "no such topic"


def test_a_single_refusal_may_carry_another_code() -> None:
    assert KafkaError("no", code=ErrorCode.INVALID_REQUEST).code is ErrorCode.INVALID_REQUEST
    assert KafkaError("no").code is ErrorCode.UNKNOWN_SERVER_ERROR
