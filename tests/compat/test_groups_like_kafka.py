"""Our broker answers everything about groups as Kafka does: the same conversations in raw frames, played against both.

What Kafka answered is kept in ``kafka_answers``, one file for each conversation, so that our broker is compared with it
where there is no Java, too. With ``-m soak`` a Kafka is started and must still say the same; with the environment
variable ``REWRITE_CONVERSATIONS=1`` its answers are written down anew, for a person to judge the difference.

Where our broker differs on purpose, a ``Difference`` says how and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from tests.compat.admin_scenarios import ADMIN_SCENARIOS
from tests.compat.classic_scenarios import CLASSIC_SCENARIOS, MAX_SIZE
from tests.compat.consumer_group_scenarios import CONSUMER_GROUP_SCENARIOS
from tests.compat.group_requests import heartbeat, join
from tests.compat.kafka_process import KafkaProcess
from tests.compat.like_kafka import ANSWERS, Difference, KafkaAnswers, Scenario, transcript
from tests.compat.offset_scenarios import OFFSET_SCENARIOS
from tests.compat.scenario_client import ScenarioClient
from trio_broker.testing.process import BrokerProcess

SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": str(MAX_SIZE),
    "group.consumer.max.size": str(MAX_SIZE),
    "group.consumer.assignment.interval.ms": "0",
}
"""Of both brokers: nothing is put off, since a conversation has no time to wait, and groups are soon full."""

ONLY_KAFKA = {"group.consumer.assignor.offload.enable": "false"}
"""Assignments come with the heartbeat that asked for them, as ours do, instead of with one of the next."""

ONLY_OURS = {"log.durability": "page-cache"}

SCENARIOS = (*CLASSIC_SCENARIOS, *OFFSET_SCENARIOS, *ADMIN_SCENARIOS, *CONSUMER_GROUP_SCENARIOS)

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda function: function.__name__)


KNOWN_DIFFERENCES = (
    Difference(
        "describing_groups",
        r"(?P<group>    - error_code=NONE .* group_id='empty' .*\n)(?P=group)",
        r"\g<group>",
        "a group named twice is described once: a few bytes would ask for megabytes",
    ),
    Difference(
        "describing_consumer_groups",
        r"(?P<group>    - error_code=NONE .*\n(?:      .*\n)+)(?P=group)",
        r"\g<group>",
        "the same",
    ),
    Difference(
        "describing_consumer_groups",
        r"INVALID_GROUP_ID error_message=null",
        r"INVALID_GROUP_ID error_message=<text>",
        "a refusal that says why",
    ),
    Difference(
        "offsets_of_a_consumer_group",
        r"UNKNOWN_SERVER_ERROR",
        r"UNKNOWN_MEMBER_ID",
        "Kafka stumbles over a member epoch without a member id",
    ),
)

KAFKA_ANSWERS = KafkaAnswers(ANSWERS, KNOWN_DIFFERENCES)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaProcess(directory, overrides=SETTINGS | ONLY_KAFKA) as process:
        wait_for_the_coordinator(process.port)
        yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides=SETTINGS | ONLY_OURS, has_admin=False) as process:
        wait_for_the_coordinator(process.port)
        yield process


def wait_for_the_coordinator(port: int) -> None:
    """Wait until the topic of the groups exists and is loaded; the first request for a coordinator creates it."""
    client = ScenarioClient(port, "wait")
    request = FindCoordinatorRequest(coordinator_keys=["group"])
    client.ask_until(lambda answer: answer.coordinators[0].error_code == ErrorCode.NONE, request, 6, what="found")
    beat = heartbeat("group", 1, "member")
    client.ask_until(lambda answer: answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID, beat, 4, what="loaded")
    client.close()


# Kafka's jars are pinned, so what it says changes with the conversations only.
@pytest.mark.soak
@each_scenario
def test_kafka_answers_as_it_was_written_down(kafka: KafkaProcess, scenario: Scenario) -> None:
    KAFKA_ANSWERS.check_kafka(kafka.port, scenario)


@each_scenario
def test_our_broker_answers_as_kafka_does(broker: BrokerProcess, scenario: Scenario) -> None:
    assert transcript(broker.port, scenario) == KAFKA_ANSWERS.ours(scenario)


def test_every_known_difference_is_of_a_conversation() -> None:
    assert {difference.scenario for difference in KNOWN_DIFFERENCES} <= {scenario.__name__ for scenario in SCENARIOS}


def test_answers_are_kept_for_every_conversation_and_no_other() -> None:
    assert KAFKA_ANSWERS.kept() == {scenario.__name__ for scenario in SCENARIOS}


def test_a_subscription_that_lies_about_its_length_does_not_hold_up_the_group(broker: BrokerProcess) -> None:
    """Kafka reads these bytes as 28,005 versions and 1,952,539,745 topics, fails, and never answers."""
    client = ScenarioClient(broker.port, "lies")
    answer = client.ask(join("lies-group", protocols={"range": b"metadata"}), 3)
    client.close()
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
