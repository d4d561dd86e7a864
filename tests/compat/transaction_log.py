"""What a broker's ``__transaction_state`` holds, read over the wire as any client can."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_wire.records.batch import read_batches
from kafka_wire.stored.transactions import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode_transaction_record,
)
from tests.compat.scenario_client import ScenarioClient
from tests.compat.transaction_requests import fetch


def transaction_records(client: ScenarioClient) -> Iterator[tuple[TransactionLogKey, TransactionLogValue | None]]:
    """Every record of the one partition, in order (``transaction.state.log.num.partitions=1``)."""
    offset, end_offset = 0, 1
    while offset < end_offset:
        answer = client.quietly(fetch("__transaction_state", [0], offset=offset), 12).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        end_offset = answer.high_watermark
        for each in read_batches(answer.records):
            for record in each.records():
                assert record.key is not None
                stored = decode_transaction_record(record.key, record.value)
                if stored is not None and record.offset >= offset:
                    yield stored
            next_offset = each.header.next_offset
        offset = next_offset


def protocols_of_commits(port: int) -> dict[str, set[int]]:
    """The versions of the protocol in which each transactional id has committed transactions: 2 since KIP-890."""
    client = ScenarioClient(port, "protocols")
    found: dict[str, set[int]] = {}
    for key, value in transaction_records(client):
        if value is not None and value.transaction_status == TransactionStatus.COMPLETE_COMMIT:
            found.setdefault(key.transactional_id, set()).add(value.client_transaction_version)
    client.close()
    return found
