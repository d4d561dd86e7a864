"""The dump: the content of the files, which are not changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_record,
)
from tests.storage.data_directories import write_data_directory
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.dump import dump


def lines(path: Path, **options: Any) -> list[str]:
    return list(dump(RealDisk(), path, **options))


@pytest.fixture
def closed(bench: Any) -> Any:
    bench.append(2, producer_id=3, producer_epoch=0, sequence=5, transactional=True)
    bench.end_transaction(3, committed=False)
    bench.append(value="zeile\nzwei ü".encode(), key=None)
    bench.log.close()
    return bench


def test_batches_are_reported_like_kafkas_tool_does(closed: Any):
    _, start, first, marker, last = lines(closed.file("00000000000000000000.log"))
    assert start == "Log starting offset: 0"
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 5 lastSequence: 6 producerId: 3 producerEpoch: 0"
        " partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: empty position: 0"
        " CreateTime: 1700000000001 size: "
    )
    assert first.endswith("isvalid: true")
    assert "isControl: true" in marker
    assert "compresscodec: none" in last


def test_records_are_listed_when_asked_for(closed: Any):
    path = closed.file("00000000000000000000.log")
    records = [line for line in lines(path, deep=True) if line.startswith("|")]
    assert records[1] == ("| offset: 1 CreateTime: 1700000000001 keySize: 3 valueSize: 5 sequence: 6 headerKeys: []")
    assert records[2].endswith("endTxnMarker: ABORT coordinatorEpoch: 0")
    printed = [line for line in lines(path, print_records=True) if line.startswith("|")]
    assert printed[3].endswith("key: null payload: zeile\\nzwei ü")


def test_a_directory_is_reported_as_a_whole(closed: Any):
    dumped = lines(closed.directory)
    assert [Path(line.removeprefix("Dumping ")).name for line in dumped if line.startswith("Dumping ")] == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000004.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert "version: 0 producerId: 3 firstOffset: 0 lastOffset: 2 lastStableOffset: 3" in dumped
    assert "timestamp: 1700000000001 offset: 1" in dumped
    assert "0 0" in dumped
    assert any(line.startswith("producerId: 3 producerEpoch: 0 lastSequence: 6") for line in dumped)


def test_damage_is_reported_and_not_raised(closed: Any):
    path = closed.file("00000000000000000000.log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data + b"tail")
    dumped = lines(path, deep=True)
    assert dumped[2].endswith("isvalid: false")
    assert dumped[-1] == "Found 4 invalid bytes at the end of 00000000000000000000.log"
    path.write_bytes(bytes(100))
    assert "no batch at position 0" in "\n".join(lines(path))
    for suffix in ("index", "timeindex", "txnindex"):
        damaged = closed.file(f"00000000000000000000.{suffix}")
        damaged.write_bytes(b"12345")
        assert lines(damaged)[1].startswith("corrupt: ")


def test_an_index_entry_that_names_another_batch_is_reported(closed: Any):
    index = closed.file("00000000000000000000.index")
    index.write_bytes(b"\0\0\0\1\0\0\0\0" + b"\0\0\0\2\0\0\0\1")
    dumped = lines(index)
    assert dumped[1] == "offset: 1 position: 0"
    assert dumped[3] == "Index offset: 2, but the log has no batch at position 1"


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        lines(tmp_path / "none.log")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match="no file of a log"):
        lines(tmp_path / "notes.txt")


def test_records_of_the_broker_are_decoded(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data_directory(RealDisk(), data)
    commits = [line for line in lines(data / "__consumer_offsets-0", print_records=True) if "payload" in line]
    key, _, payload = commits[1].partition("key: ")[2].partition(" payload: ")
    assert json.loads(key) == {"type": "1", "data": {"group": "group", "topic": "orders", "partition": 1}}
    assert json.loads(payload)["data"]["offset"] == 1
    topics = [line for line in lines(data / "__cluster_metadata-0", print_records=True) if "payload" in line]
    assert topics[0].endswith(
        'payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"AAAAAAAAAAAAAAAAAAAABw"}}'
    )


ONGOING = TransactionLogValue(
    producer_id=7,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionStatus.ONGOING,
    transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1])],
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
)


def write_transactions(directory: Path) -> None:
    """Write a segment with a transaction, and a tombstone."""
    records = [
        NewRecord(0, *encode_transaction_record(TransactionLogKey(transactional_id="t"), value))
        for value in (ONGOING, None)
    ]
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(build_batch(records))


def test_records_of_transactions_are_decoded(tmp_path: Path) -> None:
    write_transactions(tmp_path / "__transaction_state-3")
    ongoing, tombstone = [
        line.partition("key: ")[2].partition(" payload: ")
        for line in lines(tmp_path / "__transaction_state-3", print_records=True)
        if line.startswith("|")
    ]
    assert json.loads(ongoing[0]) == {"type": "0", "data": {"transactionalId": "t"}}
    payload = json.loads(ongoing[2])
    assert payload["version"] == "1"
    assert (payload["data"]["producerId"], payload["data"]["transactionStatus"]) == (7, TransactionStatus.ONGOING)
    assert payload["data"]["transactionPartitions"] == [{"topic": "orders", "partitionIds": [1]}]
    assert tombstone == (ongoing[0], " payload: ", "<DELETE>")


def test_records_of_a_file_outside_its_directory_are_decoded_as_those_of_a_given_topic(tmp_path: Path) -> None:
    write_transactions(tmp_path / "copied")
    decoded = lines(tmp_path / "copied", print_records=True, topic="__transaction_state")
    assert any('"transactionalId":"t"' in line for line in decoded)
    assert not any("transactionalId" in line for line in lines(tmp_path / "copied", print_records=True))


def test_whose_directory_it_is_is_reported(tmp_path: Path) -> None:
    write_data_directory(RealDisk(), tmp_path / "data")
    assert "node.id=1" in lines(tmp_path / "data" / "meta.properties")
