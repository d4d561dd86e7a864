"""kafka_wire.error_codes and kafka_wire.errors."""

from __future__ import annotations

import csv
from pathlib import Path

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError


def test_the_table_is_kafkas(kafka_messages: Path) -> None:
    with (kafka_messages / "error-codes.csv").open(newline="") as file:
        theirs = {row["name"]: int(row["code"]) for row in csv.DictReader(file)}
    assert {code.name: code.value for code in ErrorCode} == theirs


def test_a_refusal_carries_the_code_of_its_class() -> None:
    class NotHere(KafkaError):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert NotHere("no such topic").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert str(NotHere("no such topic")) == "no such topic"


def test_a_single_refusal_may_carry_another_code() -> None:
    assert KafkaError("no", code=ErrorCode.INVALID_REQUEST).code is ErrorCode.INVALID_REQUEST
    assert KafkaError("no").code is ErrorCode.UNKNOWN_SERVER_ERROR
