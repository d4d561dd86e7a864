"""What a consumer that reads committed records gets from a log."""

from __future__ import annotations

import attrs

from kafka_wire.records.batch import read_batches
from kafka_wire.records.record import Record
from tests.storage.log_content import fetched_data
from trio_broker.storage.log import Log


@attrs.frozen
class CommittedView:
    """All committed records in order, and of each key the newest one."""

    records: list[Record]
    newest: dict[bytes | None, Record]

    @property
    def values(self) -> dict[bytes | None, tuple[int, bytes | None]]:
        """Offset and value of each key that has one."""
        return {key: (each.offset, each.value) for key, each in self.newest.items() if each.value is not None}


def committed_view(log: Log, max_bytes: int = 700) -> CommittedView:
    """Read ``log`` up to its last stable offset, a little at a time, and drop what was aborted, as a consumer does."""
    records: list[Record] = []
    position = log.log_start_offset
    while True:
        stable_offset = log.producers.transactions.last_stable_offset(log.log_end_offset)
        fetched = log.read(position, max_bytes, end_offset=stable_offset)
        if not fetched.size:
            break
        data = fetched_data(fetched)
        ahead = sorted(
            log.aborted_transactions(position, fetched.next_offset, fetched.row), key=lambda each: each.first_offset
        )
        aborting: set[int] = set()
        for batch in read_batches(data):
            header = batch.header
            while ahead and ahead[0].first_offset <= header.last_offset:
                aborting.add(ahead.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                records += [record for record in batch.records() if record.offset >= position]
            end = header.next_offset
        position = max(end, position)
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), "offsets grow"
    return CommittedView(records, {record.key: record for record in records})
