"""Choosing an engine, changing it in the middle of a task, and checksums in both."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kafka_wire.records.compression import Codec
from kafka_wire.records.crc import crc32c
from tests.spark.decoder.decoder_logs import PARTITION, chunk, numbered, offsets_of, with_header
from tests.waits import run_program, within
from trio_broker.spark import decoder
from trio_broker.spark.background_load import BackgroundLoad
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder import Engine, available_engine, decode, jit_crc
from trio_broker.spark.decoder.numba_engine import NumbaDecoder
from trio_broker.spark.decoder.plain_engine import PlainDecoder
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.workarounds import worker_memory


@pytest.fixture(autouse=True)
def _forget_the_engine() -> Iterator[None]:
    available_engine.cache_clear()
    yield
    available_engine.cache_clear()


def test_numba_is_used_where_it_is() -> None:
    assert available_engine() is Engine.NUMBA


def test_without_numba_there_is_the_plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert available_engine() is Engine.PLAIN


def test_a_numba_that_does_not_work_is_reported_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_engine: Engine, _decoding: Decoding) -> None:
        raise ImportError("Numba needs NumPy 2.2 or less")

    monkeypatch.setattr(decoder, "_decoder", broken)
    assert available_engine() is Engine.PLAIN
    assert "Numba needs NumPy 2.2 or less" in caplog.text


def test_the_plain_engine_does_not_import_numba() -> None:
    program = (
        "import sys; from tests.spark.decoder.decoder_logs import *\n"
        "assert offsets_of([chunk(numbered(3))], Engine.PLAIN) == [0, 1, 2]\n"
        "assert not {'numba', 'llvmlite'} & set(sys.modules)"
    )
    path = f"import sys; sys.path[:] = {sys.path}\n"
    run_program([sys.executable, "-c", path + program], 120, check=True)


@pytest.mark.parametrize("switch_at", range(5))
def test_a_task_changes_its_engine_between_two_chunks_and_yields_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, switch_at: int
) -> None:
    chosen: list[Engine] = []

    def choose(offset_count: int) -> Engine:
        chosen.append(Engine.PLAIN if len(chosen) < switch_at else Engine.NUMBA)
        return chosen[-1]

    monkeypatch.setattr(decoder, "ready_engine", choose)
    chunks = [chunk(numbered(3, 10 * number, codec=codec)) for number, codec in enumerate((Codec.NONE, Codec.ZSTD) * 2)]

    assert offsets_of(chunks, None) == [10 * number + row for number in range(4) for row in range(3)]
    assert (Engine.PLAIN in chosen) == (switch_at > 0)
    assert (Engine.NUMBA in chosen) == (switch_at < 5)


def test_the_engine_that_a_worker_begins_with_does_not_wait_for_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(worker_memory, "is_worker", lambda: True)
    load = BackgroundLoad(lambda: Engine.NUMBA if within(may_end.wait, 60) else None)
    monkeypatch.setattr(decoder, "_loaded_engine", load)

    assert offsets_of([chunk(numbered(3))], None) == [0, 1, 2]
    assert decoder.ready_engine() is Engine.PLAIN
    may_end.set()


def test_a_worker_does_not_load_numba_for_few_records_but_at_once_for_a_large_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(worker_memory, "is_worker", lambda: True)
    monkeypatch.setattr(worker_memory, "load_begins", begun.append)
    load = BackgroundLoad(lambda: Engine.PLAIN, min_rows=decoder.MIN_OFFSETS)
    monkeypatch.setattr(decoder, "_loaded_engine", load)

    def read(offset_count: int) -> int:
        offsets = OffsetRange(PARTITION, 0, offset_count)
        return sum(batch.num_rows for batch in decode([chunk(numbered(3))], offsets, Decoding(("offset",))))

    assert read(3) == 3
    assert not begun
    assert read(decoder.MIN_OFFSETS) == 3
    assert begun == [load]


SIZES = [*range(40), 511, 512, 1535, 1536, 1537, 3071, 3072, 5000, 16_384, 100_000]


@pytest.mark.parametrize("decoder_class", [NumbaDecoder, PlainDecoder])
def test_the_first_wrong_checksum_is_found(decoder_class: type[NumbaDecoder | PlainDecoder]) -> None:
    first_bad_crc = decoder_class(Decoding(("key",))).first_bad_crc
    data = np.frombuffer(random.Random(1).randbytes(200_000), np.uint8)
    starts = np.arange(len(SIZES)) % 11
    ends = starts + SIZES
    expected = np.array([crc32c(data.data[start:end]) for start, end in zip(starts, ends, strict=True)])
    assert first_bad_crc(data, starts, ends, expected) is None
    for wrong in (len(SIZES) - 1, 7, 0):
        expected[wrong] ^= 1 << wrong % 32
        assert first_bad_crc(data, starts, ends, expected) == wrong


def test_without_the_instruction_the_library_takes_the_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumbaDecoder, "compares_crcs", False)
    monkeypatch.setattr(jit_crc, "find_bad_crc", None)
    test_the_first_wrong_checksum_is_found(NumbaDecoder)
    log = [numbered(3), numbered(3, 3, codec=Codec.LZ4), with_header(numbered(3, 6), record_count=3)]
    assert offsets_of([chunk(*log)], Engine.NUMBA) == list(range(9))
    with pytest.raises(CorruptData, match=r"at offset 6: .*CRC"):
        offsets_of([chunk(*log[:2], log[2][:-1] + b"!")], Engine.NUMBA)
