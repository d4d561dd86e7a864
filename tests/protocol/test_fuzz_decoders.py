"""A short, repeatable slice of ``fuzz.decoders``, and the proof that it would find something."""

from __future__ import annotations

import random
import struct

from fuzz.decoders import Statistics, Target, check_metadata_record, fuzz, message_check, mutated, targets, try_frame
from kafka_wire.codec import encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.messages.describe_client_quotas import DescribeClientQuotasResponse, EntityData, EntryData, ValueData
from kafka_wire.stored.metadata import ClientQuotaRecord, encode_metadata_record

ROUNDS = 4


def test_broken_frames_raise_wire_errors_and_nothing_else() -> None:
    statistics = Statistics()
    findings = list(fuzz(20261121, iter(range(ROUNDS)), statistics))
    assert not findings, "\n".join(map(str, findings))
    assert statistics.read > statistics.tried // 2, "half of the frames are intact"
    assert statistics.read < statistics.tried, "and some of the others are refused"


def test_the_same_seed_breaks_frames_in_the_same_way() -> None:
    one, other = random.Random(7), random.Random(7)
    for mine, yours in zip(targets(one), targets(other), strict=True):
        assert (mine.name, mine.seed_frame) == (yours.name, yours.seed_frame)
        assert mutated(mine.seed_frame, b"other", one) == mutated(yours.seed_frame, b"other", other)


def test_another_exception_is_a_finding() -> None:
    def check(frame: bytes) -> None:
        struct.unpack(">i", frame)

    finding = try_frame(Target("a decoder", b"", check), b"\x00", Statistics())
    assert finding is not None
    assert "error" in finding.problem
    assert "00" in str(finding)


def test_a_wire_error_is_no_finding() -> None:
    def check(frame: bytes) -> None:
        raise WireError("not Kafka's")

    statistics = Statistics()
    assert try_frame(Target("a decoder", b"", check), b"", statistics) is None
    assert statistics == Statistics(tried=1, read=0)


def test_a_number_that_is_none_survives_a_round_trip() -> None:
    value = ValueData(key="rate", value=float("nan"))
    entity = EntityData(entity_type="user", entity_name=None)
    message = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=[EntryData(entity=[entity], values=[value])]
    )
    message_check(DescribeClientQuotasResponse, 1)(encode_bytes(message, 1))
    record = ClientQuotaRecord(entity=[], key="rate", value=float("nan"), remove=False)
    check_metadata_record(encode_metadata_record(record))
