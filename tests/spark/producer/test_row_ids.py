from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.row_ids import HEADER, NO_BATCH, Deduplicator, RowId, TaskId, find_row_id

QUERY = UUID("00112233-4455-6677-8899-aabbccddeeff")
ORDERS = TopicPartition("orders", 0)


def test_a_row_id_is_laid_out_as_the_documentation_says():
    value = RowId(TaskId(QUERY, batch_id=258, task=3), row=65_537).to_bytes()

    assert value.hex(" ") == (
        "01 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff 00 00 00 00 00 00 01 02 00 00 00 03 00 00 00 00 00 01 00 01"
    )


@given(st.uuids(), st.integers(NO_BATCH, 2**63 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_a_row_id_comes_back_as_it_was(query_id: UUID, batch_id: int, task: int, row: int):
    row_id = RowId(TaskId(query_id, batch_id, task), row)

    assert RowId.from_bytes(row_id.to_bytes()) == row_id


@pytest.mark.parametrize("value", [b"", b"\x02" + bytes(36), bytes(36), b"\x01" + bytes(37)])
def test_other_bytes_are_no_row_id(value: bytes):
    with pytest.raises(ValueError, match="are no row id of version 1"):
        RowId.from_bytes(value)


def test_the_last_header_counts_since_an_older_one_is_of_an_earlier_journey():
    first, second = RowId(TaskId(QUERY, 0, 0), 1), RowId(TaskId(QUERY, 5, 0), 2)

    assert find_row_id([(HEADER, first.to_bytes()), ("other", None), (HEADER, second.to_bytes())]) == second
    assert find_row_id([("other", b"x")]) is None
    assert find_row_id(None) is None


def test_a_deduplicator_remembers_one_place_for_each_task_number_of_a_query():
    deduplicator = Deduplicator()
    for batch_id in range(100):
        for row in range(100):
            assert deduplicator.is_new(ORDERS, RowId(TaskId(QUERY, batch_id, 0), row))
    assert len(deduplicator.highest) == 1


def test_queries_tasks_and_partitions_do_not_hide_each_other():
    deduplicator = Deduplicator()
    row_id = RowId(TaskId(QUERY, 7, 1), 9)
    others = [
        (ORDERS, RowId(TaskId(QUERY, 7, 1), 9)),
        (ORDERS, RowId(TaskId(QUERY, 7, 2), 0)),
        (ORDERS, RowId(TaskId(UUID(int=1), 0, 1), 0)),
        (TopicPartition("orders", 1), row_id),
    ]
    assert all(deduplicator.is_new(partition, each) for partition, each in others)
    assert not any(deduplicator.is_new(partition, each) for partition, each in others)


def test_in_a_compacted_topic_the_rule_would_drop_rows():
    """Rows 0 and 1 were written twice; the first copy of row 0 is gone, since the second has the same key."""
    deduplicator = Deduplicator()

    kept = [row for row in (1, 0, 1) if deduplicator.is_new(ORDERS, RowId(TaskId(QUERY, 3, 0), row))]

    assert 0 not in kept


@given(st.data())
def test_attempts_that_write_at_once_leave_each_row_once_and_in_order(data: st.DataObject):
    """Each attempt writes its rows in their order, dies anywhere, and may be passed by others; one ends."""
    rows = data.draw(st.integers(1, 8))
    attempts = [0] * data.draw(st.integers(1, 4))
    log: list[int] = []
    while max(attempts) < rows:
        attempt = data.draw(st.integers(0, len(attempts) - 1))
        log.append(attempts[attempt])
        attempts[attempt] += 1
    deduplicator = Deduplicator()

    kept = [row for row in log if deduplicator.is_new(ORDERS, RowId(TaskId(QUERY, 3, 0), row))]

    assert kept == list(range(rows))
