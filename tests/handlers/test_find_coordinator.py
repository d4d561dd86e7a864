"""FindCoordinator."""

from __future__ import annotations

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from tests.cases import each
from tests.fakes.followed_metadata import elected, follow, registered
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from tests.handlers.wire_client import advertising
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.coordinator.runtime.coordinator_runtime import CREATION_SECONDS
from trio_broker.handlers.find_coordinator import error_response, find_coordinator
from trio_broker.network.request_channel import ConnectionInfo

SINGLE = range(4)
BATCHED = range(4, 7)
VERSIONS = range(7)
GROUP, SHARE = 0, 2


@pytest.fixture
async def open_wire_client(open_wire_client, nursery):
    """As everywhere, with a group coordinator that runs."""

    async def open_client(*arguments, **settings):
        wire = await open_wire_client(*arguments, **settings)
        await nursery.start(wire.services.groups.run)
        return wire

    yield open_client
    nursery.cancel_scope.cancel()


def request(version, key="g", key_type=GROUP):
    keys = {"key": key} if version in SINGLE else {"coordinator_keys": [key]}
    return FindCoordinatorRequest(**keys, key_type=key_type)


def only(response, version):
    """The one answer, wherever the version has it."""
    return response if version in SINGLE else response.coordinators[0]


@each("version", VERSIONS)
async def test_every_group_is_looked_after_by_this_node(wire, version):
    answer = only(await wire.ask(request(version), version), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker.test", 9092)


@pytest.mark.parametrize("version", [0, 6])
async def test_a_key_whose_partition_another_broker_leads_is_coordinated_there(open_wire_client, version):
    wire = await open_wire_client(offsets_topic_num_partitions="1")
    await wire.services.groups.find("g")
    records = [registered(2, 9093), elected(wire.services, CONSUMER_OFFSETS_TOPIC, 2)]
    await follow(wire.services, *records)
    answer = only(await wire.ask(request(version), version), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 2, "broker-2.test", 9093)
    await follow(wire.services, registered(2, 9093, fenced=True))
    answer = only(await wire.ask(request(version), version), version)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    await follow(wire.services, elected(wire.services, CONSUMER_OFFSETS_TOPIC, -1))
    answer = only(await wire.ask(request(version), version), version)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@each("version,message", [(0, ""), (1, "NONE"), (3, "NONE"), (4, ""), (6, "")])
async def test_the_message_beside_no_error_is_kafkas(wire, version, message):
    assert only(await wire.ask(request(version), version), version).error_message == message


@pytest.mark.parametrize("version", [0, 6])
async def test_the_address_is_that_of_the_listener(open_wire_client, version):
    client = await open_wire_client(advertising({"PLAINTEXT": ("one", 1), "INSIDE": ("two", 2)}))
    client.connection = ConnectionInfo(1, "INSIDE", "127.0.0.1", 50_000, "127.0.0.1", 9093)
    answer = only(await client.ask(request(version), version), version)
    assert (answer.host, answer.port) == ("two", 2)


@each("version", VERSIONS)
async def test_the_empty_group_has_a_coordinator_too(wire, version):
    assert only(await wire.ask(request(version, ""), version), version).error_code == ErrorCode.NONE


async def test_the_first_question_creates_the_topic_of_the_offsets_with_fifty_partitions(open_wire_client):
    wire = await open_wire_client()
    await wire.ask(request(0), 0)
    topic = wire.services.metadata_cache.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 50
    assert topic.configs["cleanup.policy"] == "compact"


async def test_a_controller_that_does_not_answer_holds_up_nobody_for_long(
    open_wire_client, monkeypatch, autojump_clock
):
    """However many ask, and for however many keys."""
    wire = await open_wire_client()
    cache = wire.services.metadata_cache
    alone = cache.image.brokers
    brokers = {**alone, 2: attrs.evolve(next(iter(alone.values())), broker_id=2)}
    cache.set_image(attrs.evolve(cache.image, brokers=brokers))

    async def create_never(topics):
        await trio.sleep_forever()

    monkeypatch.setattr(wire.services.controller, "create_topics", create_never)
    answers: list[int] = []

    async def ask():
        batch = FindCoordinatorRequest(coordinator_keys=["f", "g", "h"], key_type=GROUP)
        answers.extend(each.error_code for each in (await wire.ask(batch, 6)).coordinators)

    with trio.fail_after(2 * CREATION_SECONDS):
        async with trio.open_nursery() as clients:
            for _ in range(3):
                clients.start_soon(ask)
    assert answers == 9 * [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@each("version", BATCHED)
async def test_many_keys_are_answered_each_in_their_order(wire, version):
    keys = [f"g-{number}" for number in range(1200)]
    response = await wire.ask(FindCoordinatorRequest(coordinator_keys=keys), version)
    assert [answer.key for answer in response.coordinators] == keys
    assert {answer.node_id for answer in response.coordinators} == {1}


@each("version,key_type,code", [
    *((version, SHARE, ErrorCode.INVALID_REQUEST) for version in range(1, 7)),
    *((version, 77, ErrorCode.INVALID_REQUEST) for version in range(1, 7)),
])  # fmt: skip
async def test_what_nobody_will_ever_look_after_is_refused_for_good(wire, version, key_type, code):
    answer = only(await wire.ask(request(version, "key", key_type), version), version)
    assert answer.error_code == code
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
    assert answer.error_message


async def test_a_coordinator_that_is_not_available_concerns_its_own_keys_alone():
    client = await make_admin_client()
    failure = KafkaError("not now", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    client.groups = ScriptedGroups(lambda group_id: failure)
    response = await client.ask(find_coordinator, FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4)
    assert [(answer.key, answer.error_code) for answer in response.coordinators] == [("a", 15), ("b", 15)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_has_the_shape_of_the_version(version):
    response = error_response(request(version), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    answer = only(response, version)
    assert (answer.error_code, answer.error_message, answer.node_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "no", -1)
