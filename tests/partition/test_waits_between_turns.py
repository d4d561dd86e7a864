"""Steps that look in one turn and wait in a later one: what they wait for may come in between, and is not missed.

``test_fetch_operation`` has those of a Fetch.
"""

from __future__ import annotations

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.partition.real_logs import NOW_MS, add_topic, batch, make_replicas, sync, write_epoch_entry
from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager


@pytest.fixture
def durable_replicas(tmp_path):
    made = make_replicas(tmp_path / "durable")
    yield made
    made.log_manager.close(clean=False)


async def written(replicas: ReplicaManager) -> Partition:
    """A partition with one record, which no sync has covered."""
    [partition] = await add_topic(replicas)
    write_epoch_entry(partition)
    partition.writer.append(batch(b"a"), now_ms=NOW_MS)
    return partition


def until_durable(replicas: ReplicaManager, partition: Partition) -> Steps[list[ErrorCode]]:
    required = RequiredOffset(partition, partition.log_end_offset)
    return replicas.appends.replication_steps([required], timeout_seconds=60, release_handler=ignore_release)


async def test_the_report_of_a_sync_before_a_produce_waits_ends_its_wait(durable_replicas, autojump_clock):
    partition = await written(durable_replicas)
    steps = until_durable(durable_replicas, partition)
    wait = next(steps)
    sync(partition)
    assert await run_steps(steps, wait) == [ErrorCode.NONE]
    assert trio.current_time() == 0


async def test_a_failure_before_a_produce_waits_ends_its_wait(durable_replicas, autojump_clock):
    partition = await written(durable_replicas)
    steps = until_durable(durable_replicas, partition)
    wait = next(steps)
    partition.fail(KafkaError("gone", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert await run_steps(steps, wait) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert trio.current_time() == 0


async def test_an_append_that_waits_for_a_writer_is_made_when_that_has_ended_before_the_wait(replicas, autojump_clock):
    [partition] = await add_topic(replicas)
    steps = replicas.appends.append_steps(partition, batch(b"a"), produce_version=9)
    wait = next(steps)
    await replicas.appends.ready_to_append(partition)
    assert not partition.writer.is_busy
    assert (await run_steps(steps, wait)).first_offset == 0
