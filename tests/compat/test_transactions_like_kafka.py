"""Our broker answers everything about transactions as Kafka does: the same conversations, played against both.

See ``like_kafka`` for how. Where our broker differs on purpose, a ``Difference`` says how and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from tests.compat.kafka_process import KafkaProcess
from tests.compat.like_kafka import ANSWERS, EVERY_SCENARIO, Difference, KafkaAnswers, Scenario, transcript
from tests.compat.scenario_client import ScenarioClient
from tests.compat.transaction_deletion_scenarios import TRANSACTION_DELETION_SCENARIOS
from tests.compat.transaction_requests import init
from tests.compat.transaction_scenarios import SLOW_TRANSACTION_SCENARIOS, TRANSACTION_SCENARIOS
from trio_broker.testing.process import BrokerProcess

SETTINGS = {
    "node.id": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.roll.ms": str(100 * 365 * 24 * 60 * 60 * 1000),
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Of both brokers: one partition for each coordinator. Records and markers, which are years apart, stay in one segment:
a fetch ends where a segment does.
"""

ONLY_KAFKA = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
"""How often it looks for transactions that took too long; ten seconds without."""

ONLY_OURS = {"log.durability": "page-cache"}

KNOWN_DIFFERENCES = (
    Difference(
        EVERY_SCENARIO,
        kafka=r"(error_code=(?!NONE )\w+ base_offset=-1 .*error_message=)null",
        ours=r"\1<text>",
        reason="Our broker says with every refused batch why it is refused.",
    ),
    Difference(
        EVERY_SCENARIO,
        kafka="aborted_transactions=null",
        ours="aborted_transactions=[]",
        reason="Readers of all records get an empty list, which no client takes for something else.",
    ),
    Difference(
        "writing_in_a_transaction",
        kafka=r"(topic_data=\[\(name='t'\)\]\n)    responses=\[\] node_endpoints=\[\]",
        ours=r"\1    node_endpoints=[]\n    responses:\n    - name='t' partition_responses=[]",
        reason="A topic without partitions is in the answer as it is in the request.",
    ),
    Difference(
        "writing_batches_that_no_producer_writes",
        kafka=r"(records=\[\]\)\]\)\]\n(?:.*\n){4}.*error_code=)INVALID_RECORD",
        ours=r"\1CORRUPT_MESSAGE",
        reason="Bytes that were cut off are damaged, and the producer may send the batch again.",
    ),
    Difference(
        "writing_batches_that_no_producer_writes",
        kafka=r"(INVALID_RECORD base_offset=-1 log_append_time_ms=-1 log_start_offset=)-1",
        ours=r"\g<1>0",
        reason="The log start offset comes with every batch that the partition refuses.",
    ),
    Difference(
        "writing_batches_that_no_producer_writes",
        kafka=(
            r"(records=\[0-0 transactional\]\)\]\)\]\n(?:.*\n){4}.*error_code=)NONE base_offset=\d "
            r"(log_append_time_ms=-1) log_start_offset=0 record_errors=\[\] error_message=null"
        ),
        ours=(
            r"\1INVALID_PRODUCER_ID_MAPPING base_offset=-1 \2 log_start_offset=-1 record_errors=[] "
            r"error_message=<text>"
        ),
        reason="A batch that says it is transactional and belongs to no transaction is refused.",
    ),
    Difference(
        "writing_records_that_decompress_to_more_than_is_taken",
        kafka=r"record_errors=\[\] (error_message=<text>\n)",
        ours=(
            r"\1        record_errors:\n"
            r"        - batch_index=1 batch_index_error_message='a record of 1001 bytes, at most 1000 are taken'\n"
        ),
        reason="The record that is too large is named, so that the producer may send the others again.",
    ),
    Difference(
        "deleting_records_of_a_transaction",
        kafka="last_stable_offset=1 log_start_offset=2",
        ours="last_stable_offset=2 log_start_offset=2",
        reason="The last stable offset is never before the log start offset; Kafka's is where the batch begins.",
    ),
    Difference(
        "deleting_records_of_a_transaction",
        kafka=r"(isolation_level=1 .*timestamp=-1\)\]\)\]\n(?:.*\n){3}.* offset=)1 ",
        ours=r"\g<1>2 ",
        reason="The same, asked for by itself.",
    ),
    Difference(
        "ending_again",
        kafka=r"('1-commit-CompleteAbort-1' .* committed=True\n    error_code=)INVALID_TXN_STATE",
        ours=r"\1PRODUCER_FENCED",
        reason="No producer repeats its abort as a commit; see the next one.",
    ),
    Difference(
        "ending_by_itself",
        kafka=r"(EndTxn v5 .* committed=True\n    error_code=)INVALID_TXN_STATE",
        ours=r"\1PRODUCER_FENCED",
        reason="The coordinator has aborted: Kafka Streams goes on when fenced, and ends otherwise (KAFKA-20785).",
    ),
    Difference(
        "using_up_the_epochs",
        kafka=r"(epoch 32766 from 1\].*\n(?:.*\n){4}.*error_code=)INVALID_PRODUCER_EPOCH",
        ours=r"\1INVALID_PRODUCER_ID_MAPPING",
        reason="The coordinator is asked first, which has the transactional id under another producer id by now.",
    ),
    Difference(
        "using_up_the_epochs",
        kafka=r"(transactional_id='again-0' .*producer_epoch=32765\n)    error_code=UNKNOWN_SERVER_ERROR .*",
        ours=r"\1    error_code=NONE producer_id=<producer 3> producer_epoch=32766",
        reason="A producer whose answer was lost gets it again, with the last epoch, too, where Kafka fails.",
    ),
    Difference(
        "using_up_the_epochs",
        kafka=r"(transactional_id='again-1' .*producer_epoch=32765\n    error_code=)UNKNOWN_SERVER_ERROR",
        ours=r"\1PRODUCER_FENCED",
        reason="A producer that another has followed is fenced, with the last epoch, too, where Kafka fails.",
    ),
    Difference(
        "describing_producers",
        kafka="(error_code=UNKNOWN_TOPIC_OR_PARTITION error_message=)null",
        ours=r"\1<text>",
        reason="The answer says why, of a partition as well as of a topic.",
    ),
    Difference(
        "describing_producers",
        kafka=r"(topics:\n)(    - name='t'\n      partitions:\n)?(      - partition_index=1 .*\n)(?:\2)?\3",
        ours=r"\1\2\3",
        reason="A partition that is named twice is described once: its producers may be many.",
    ),
    Difference(
        "markers_by_an_administrator",
        kafka="UNKNOWN_SERVER_ERROR",
        ours="INVALID_PRODUCER_EPOCH",
        reason="A marker of an older epoch is refused with the reason.",
    ),
    Difference(
        "reading",
        kafka=(
            r"(log_start_offset=0 )"
            r"(preferred_read_replica=-1 records=\[0-0 by <producer \d> epoch 0 from 0\](?:\n .*){6})"
            r"\n        aborted_transactions:\n        - producer_id=<producer \d> first_offset=1"
        ),
        ours=r"\1aborted_transactions=[] \2",
        reason="Aborted transactions without a record in the answer are left out.",
    ),
    Difference(
        "describing_transactions",
        kafka=r"(transactional_ids=\['empty', 'empty'\]\n    transaction_states:\n)(    - .*\n)\2",
        ours=r"\1\2",
        reason="An id that is named twice is described once: its partitions may be many.",
    ),
)

EVERY_TRANSACTION_SCENARIO = (*TRANSACTION_SCENARIOS, *TRANSACTION_DELETION_SCENARIOS, *SLOW_TRANSACTION_SCENARIOS)

KAFKA_ANSWERS = KafkaAnswers(ANSWERS / "transactions", KNOWN_DIFFERENCES)

each_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            scenario, id=scenario.__name__, marks=pytest.mark.soak if scenario in SLOW_TRANSACTION_SCENARIOS else ()
        )
        for scenario in EVERY_TRANSACTION_SCENARIO
    ],
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaProcess(directory, overrides=SETTINGS | ONLY_KAFKA) as process:
        wait_for_the_coordinators(process.port)
        yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides=SETTINGS | ONLY_OURS, has_admin=False) as process:
        wait_for_the_coordinators(process.port)
        yield process


def wait_for_the_coordinators(port: int) -> None:
    """Wait until the topics of the groups and of the transactions exist and are loaded.

    The first request for a coordinator creates its topic. The first producer id, which may be 0, is used up here: a
    request that has it would leave it out of its line as what a field begins with.
    """
    client = ScenarioClient(port, "wait")
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["probe"])
        client.ask_until(lambda answer: answer.coordinators[0].error_code == ErrorCode.NONE, request, 6, what="found")
    client.ask_until(lambda answer: answer.error_code == ErrorCode.NONE, init("probe"), 5, what="loaded")
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
    named = {difference.scenario for difference in KNOWN_DIFFERENCES}
    assert named <= {scenario.__name__ for scenario in EVERY_TRANSACTION_SCENARIO} | {EVERY_SCENARIO}


def test_answers_are_kept_for_every_conversation_and_no_other() -> None:
    assert KAFKA_ANSWERS.kept() == {scenario.__name__ for scenario in EVERY_TRANSACTION_SCENARIO}
