"""A short, repeatable slice of ``fuzz.records``, the bombs, and the proof that it would find something."""

from __future__ import annotations

import random

import pytest

from fuzz.records import (
    MAX_INFLATED_BYTES,
    MAX_MEMORY_GROWTH_BYTES,
    Bomb,
    Statistics,
    bombs,
    broken_batch,
    fuzz,
    peak_memory_bytes,
    seed_batches,
    try_batches,
    try_bomb,
)
from kafka_wire.records.batch import RecordBatch
from kafka_wire.records.compression import Codec, compress
from kafka_wire.records.errors import InvalidRecord

ROUNDS = 60

BOMBS = bombs()


def test_broken_batches_raise_kafka_errors_and_nothing_else() -> None:
    statistics = Statistics()
    findings = list(fuzz(20261121, range(ROUNDS), statistics))
    assert not findings, "\n".join(map(str, findings))
    assert 0.1 < statistics.valid / statistics.tried < 0.9, "both ways are taken"


def test_the_same_seed_breaks_batches_in_the_same_way() -> None:
    def some(seed: int) -> list[bytes]:
        chance = random.Random(seed)
        return [broken_batch(batch, b"other", chance) for batch in seed_batches(chance)]

    assert some(7) == some(7)
    assert some(7) != some(8)


@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.name for bomb in BOMBS])
def test_bombs_are_refused_in_bounded_time_and_memory(bomb: Bomb) -> None:
    before = peak_memory_bytes()
    assert try_bomb(bomb) is None
    assert peak_memory_bytes() - before < MAX_MEMORY_GROWTH_BYTES


def test_every_codec_has_its_bombs() -> None:
    assert {bomb.codec for bomb in BOMBS} == set(Codec)


def test_what_is_let_through_or_refused_otherwise_is_a_finding() -> None:
    harmless = Bomb("harmless", Codec.GZIP, compress(Codec.GZIP, b"abc"), InvalidRecord)
    otherwise = Bomb("otherwise", Codec.GZIP, compress(Codec.GZIP, bytes(MAX_INFLATED_BYTES + 1)), InvalidRecord)
    for bomb, problem in ((harmless, "let through"), (otherwise, "DecompressionTooLarge")):
        finding = try_bomb(bomb)
        assert finding is not None
        assert problem in str(finding)


def test_another_exception_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def verify_crc(self: RecordBatch) -> None:
        raise IndexError

    (batch, *_) = seed_batches(random.Random(1))
    assert try_batches(batch, Statistics()) is None
    monkeypatch.setattr(RecordBatch, "verify_crc", verify_crc)
    finding = try_batches(batch, Statistics())
    assert finding is not None
    assert "IndexError" in str(finding)
