"""``kafka-transactions.sh`` against a real broker process: what it lists and describes, and hanging transactions, which
it finds and aborts.

A transaction hangs when its partition has it open and its coordinator does not know of it, so that nobody will ever
end it. Here the topic of the coordinators' states is deleted. One JVM runs all calls, in order; each test judges what
some of them printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.scenario_client import ScenarioClient
from tests.compat.test_transactions_python import SECONDS, confluent_read
from tests.compat.transaction_requests import describe_producers
from tests.java_programs import Java
from tests.waits import flushed, within
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.testing.process import BrokerProcess

TOOL = "org.apache.kafka.tools.TransactionsCommand"

SETTINGS = {"log.durability": "page-cache", "transaction.state.log.num.partitions": "1"}

TIMEOUT_MS = 600_000
"""Of the transactions: longer than all calls take on a slow machine."""

COMMITTED, OPEN = b"committed", b"open"


@attrs.frozen
class Seen:
    """What each call printed, by its name, and what is committed at the end where transactions hung."""

    printed: Mapping[str, Any]
    hanging_ids: tuple[int, int]
    committed: list[bytes]

    def rows(self, name: str) -> list[dict[str, str]]:
        """The table that a call printed."""
        assert self.printed[name]["code"] == 0, self.printed[name]
        headers, *rows = (line.split("\t") for line in self.printed[name]["out"].splitlines())
        return [{head.strip(): cell.strip() for head, cell in zip(headers, row, strict=True)} for row in rows]

    def refusal(self, name: str) -> str:
        assert self.printed[name]["code"] == 1, self.printed[name]
        return str(self.printed[name]["err"])


def calls(second_hanging_id: int) -> dict[str, tuple[str, ...]]:
    """The arguments of each call by a name for it."""
    find = ("find-hanging", "--max-transaction-timeout", "0")
    place = ("--topic", "hanging", "--partition")
    of_an_older_broker = ("--producer-id", str(second_hanging_id), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    return {
        "list": ("list",),
        "list by duration": ("list", "--duration-filter", "3600000"),
        "list by pattern": ("list", "--transactional-id-pattern", "al.*"),
        "list by a bad pattern": ("list", "--transactional-id-pattern", "("),
        "describe": ("describe", "--transactional-id", "alive"),
        "describe ended": ("describe", "--transactional-id", "ended"),
        "describe unknown": ("describe", "--transactional-id", "lost"),
        "producers": ("describe-producers", *place, "0"),
        "producers of the broker": ("describe-producers", *place, "0", "--broker-id", "1"),
        "find": (*find, "--broker-id", "1"),
        "find of a topic": (*find, "--topic", "alive"),
        "find of a partition": (*find, *place, "1"),
        "find what is old": ("find-hanging", "--broker-id", "1"),
        "abort at no beginning": ("abort", *place, "0", "--start-offset", "0"),
        "abort": ("abort", *place, "0", "--start-offset", "1"),
        "abort by producer": ("abort", *place, "1", *of_an_older_broker),
        "abort again": ("abort", *place, "0", "--start-offset", "1"),
        "find after": (*find, "--broker-id", "1"),
        "producers after": ("describe-producers", *place, "0"),
    }


@pytest.fixture(scope="module")
def seen(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    with ExitStack() as stack:
        broker = stack.enter_context(
            BrokerProcess(tmp_path_factory.mktemp("broker"), overrides=SETTINGS, has_admin=False)
        )
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic("hanging", 2, 1), NewTopic("alive", 1, 1)]).values():
            within(created.result, SECONDS)
        producer = Producer({"bootstrap.servers": servers})
        for partition in (0, 1):
            producer.produce("hanging", COMMITTED, partition=partition)
        assert flushed(producer, SECONDS)
        lost = [begin(servers, f"lost-{partition}", "hanging", partition) for partition in (0, 1)]
        for deleted in admin.delete_topics([TRANSACTION_STATE_TOPIC]).values():
            within(deleted.result, SECONDS)
        lost.clear()
        alive = begin(servers, "alive", "alive", 0)
        begin(servers, "ended", "alive", 0).commit_transaction(SECONDS)
        client = ScenarioClient(broker.port, "tool")
        answer = client.quietly(describe_producers({"hanging": [0, 1]}), 0).topics[0].partitions
        first, second = (open_producer(partition) for partition in answer)
        client.close()
        wanted = calls(second)
        given = [
            {"tool": TOOL, "arguments": ["--bootstrap-server", servers, *arguments]} for arguments in wanted.values()
        ]
        printed = dict(zip(wanted, java.run("RunTools", given=given), strict=True))
        alive.commit_transaction(SECONDS)
        return Seen(printed, (first, second), confluent_read(servers, "hanging"))


def begin(servers: str, transactional_id: str, topic: str, partition: int) -> Producer:
    """A producer that has written a record in a transaction."""
    settings = {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, OPEN, partition=partition)
    assert flushed(producer, SECONDS)
    return producer


def open_producer(partition: Any) -> int:
    """The id of the one producer with an open transaction in a partition, as DescribeProducers describes it."""
    [found] = [each.producer_id for each in partition.active_producers if each.current_txn_start_offset >= 0]
    return int(found)


def test_transactional_ids_are_listed_with_their_state(seen: Seen) -> None:
    states = {row["TransactionalId"]: row["TransactionState"] for row in seen.rows("list")}
    assert states == {"alive": "Ongoing", "ended": "CompleteCommit"}
    assert [row["TransactionalId"] for row in seen.rows("list by pattern")] == ["alive"]
    assert seen.rows("list by duration") == []
    assert "Failed to list transactions" in seen.refusal("list by a bad pattern")


def test_a_transaction_is_described(seen: Seen) -> None:
    [alive], [ended] = seen.rows("describe"), seen.rows("describe ended")
    assert (alive["TransactionState"], alive["TopicPartitions"]) == ("Ongoing", "alive-0")
    assert (alive["CoordinatorId"], alive["TransactionTimeoutMs"]) == ("1", str(TIMEOUT_MS))
    assert int(alive["TransactionDurationMs"]) >= 0
    assert (ended["TransactionState"], ended["TopicPartitions"]) == ("CompleteCommit", "")
    assert "the ID could not be found" in seen.refusal("describe unknown")


def test_the_producers_of_a_partition_are_described(seen: Seen) -> None:
    for name in ("producers", "producers of the broker"):
        [producer] = [row for row in seen.rows(name) if row["CurrentTransactionStartOffset"] != "None"]
        assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (str(seen.hanging_ids[0]), "1")


def test_hanging_transactions_are_found_and_no_other(seen: Seen) -> None:
    found = {(row["Topic"], row["Partition"], row["ProducerId"], row["StartOffset"]) for row in seen.rows("find")}
    first, second = seen.hanging_ids
    assert found == {("hanging", "0", str(first), "1"), ("hanging", "1", str(second), "1")}
    assert seen.rows("find of a topic") == []
    assert [row["ProducerId"] for row in seen.rows("find of a partition")] == [str(second)]
    assert seen.rows("find what is old") == [], "the tool takes what is younger than fifteen minutes for alive"


def test_a_hanging_transaction_is_aborted_and_readers_go_on(seen: Seen) -> None:
    assert seen.printed["abort"]["code"] == 0, seen.printed["abort"]
    assert seen.printed["abort by producer"]["code"] == 0, seen.printed["abort by producer"]
    assert "Could not find any open transactions" in seen.refusal("abort at no beginning")
    assert "Could not find any open transactions" in seen.refusal("abort again")
    assert seen.rows("find after") == []
    assert {row["CurrentTransactionStartOffset"] for row in seen.rows("producers after")} == {"None"}
    assert seen.committed == [COMMITTED] * 2
