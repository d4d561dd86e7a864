"""Brokers report where their replicas are: what is noted, and what of it is refused."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.fakes.clusters import TOPIC_ID, after, cluster_image, partition_of, summary
from tests.fakes.images import broker_record, image_after
from trio_broker.cluster.directory_assignments import DirectoryAssignment, decide_directory_assignments
from trio_broker.cluster.metadata_image import UNASSIGNED_DIRECTORY

FIRST, SECOND, FAILED = (bytes(14) + b"\x01" + bytes([number]) for number in (1, 2, 3))


@pytest.fixture
def image():
    partitions = [{"replicas": (1, 2)}, {"replicas": (1, 2)}, {"replicas": (2, 3)}]
    return image_after(cluster_image([2, 3], partitions), broker_record(1, broker_epoch=10, log_dirs=[FIRST, SECOND]))


def assignment(index: int, directory_id: bytes, topic_id: bytes = TOPIC_ID) -> DirectoryAssignment:
    return DirectoryAssignment(topic_id=topic_id, index=index, directory_id=directory_id)


def test_the_directory_of_each_replica_is_noted_once(image, config):
    wanted = [assignment(0, FIRST), assignment(1, SECOND)]
    noted = after(image, *decide_directory_assignments(image, config, 1, 10, wanted))
    assert [partition_of(noted, index).directory_of(1) for index in (0, 1)] == [FIRST, SECOND]
    assert partition_of(noted, 0).directory_of(2) == UNASSIGNED_DIRECTORY
    assert summary(noted, 0) == summary(image, 0)
    assert partition_of(noted, 0).leader_epoch == partition_of(image, 0).leader_epoch
    again = decide_directory_assignments(noted, config, 1, 10, wanted)
    assert after(noted, *again).offset == noted.offset


def test_a_directory_that_has_failed_before_it_is_reported_takes_the_replica_out(image, config):
    decided = decide_directory_assignments(image, config, 1, 10, [assignment(0, FAILED)])
    noted = after(image, *decided)
    assert partition_of(noted, 0).directory_of(1) == FAILED
    assert summary(noted, 0)[:2] == (2, (2,))
    assert summary(noted, 1) == summary(image, 1)


@pytest.mark.parametrize("waiting", [{"eligible_leader_replicas": (1,)}, {"last_known_elr": (1,)}])
async def test_a_replica_that_is_made_anew_is_not_elected_for_what_it_had(config, waiting):
    """Its broker comes without the directory in which it was. Elected, it would have the others cut their logs."""
    partition = {"replicas": (1, 2), "leader": -1, "isr": (), "directories": (FAILED, UNASSIGNED_DIRECTORY), **waiting}
    image = image_after(cluster_image([2], [partition]), broker_record(1, broker_epoch=10, log_dirs=[FIRST]))
    anew = after(image, *decide_directory_assignments(image, config, 1, 10, [assignment(0, FIRST)]))
    found = partition_of(anew)
    assert (summary(anew), found.last_known_elr, found.directory_of(1)) == ((-1, (), ()), (), FIRST)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (assignment(0, FIRST, bytes(16)), ErrorCode.UNKNOWN_TOPIC_ID),
        (assignment(7, FIRST), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (assignment(2, FIRST), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_no_replica_of_the_broker_is_refused(image, config, wanted, code):
    [refusal] = decide_directory_assignments(image, config, 1, 10, [wanted])
    assert isinstance(refusal, KafkaError)
    assert refusal.code is code


def test_a_report_of_an_earlier_life_is_refused_as_a_whole(image, config):
    with pytest.raises(KafkaError) as raised:
        decide_directory_assignments(image, config, 1, 9, [assignment(0, FIRST)])
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
