"""Transactions of Java clients, and what their Admin says of them: of Kafka 4.4's client, which has the second protocol
(KIP-890), and of 3.7's, which has the first only.

The program is ``TransactionSteps`` of ``tests/compat/java``; each test judges one thing it saw.
"""

from __future__ import annotations

import pytest

from tests.java_programs import Java, Steps
from trio_broker.testing.process import BrokerProcess


@pytest.fixture(scope="module", params=["4.4", "3.7"])
def steps(java: Java, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Steps:
    client = java if request.param == "4.4" else java.with_older_client()
    # A broker for each client: both use the same topics and transactional ids.
    directory = tmp_path_factory.mktemp("transactions")
    with BrokerProcess(directory, overrides={"log.durability": "page-cache"}, has_admin=False) as broker:
        steps = Steps(client.run("TransactionSteps", broker.bootstrap_servers))
    assert steps.result("version").startswith(request.param)
    return steps


def test_read_committed_consumers_see_no_aborted_record(steps: Steps) -> None:
    seen = steps.result("committed and aborted")
    committed = [f"record {number}" for number in (0, 2, 3, 5)]
    assert (seen["committed 0"], seen["committed 1"]) == (committed, committed)
    assert (seen["all 0"], seen["all 1"]) == (6, 6)


def test_a_producer_whose_id_another_has_taken_is_fenced(steps: Steps) -> None:
    seen = steps.result("fenced")
    assert seen["error"] in ("ProducerFencedException", "InvalidProducerEpochException")
    assert (seen["last"], seen["zombies"]) == ("of its successor", 0)


def test_offsets_count_when_their_transaction_is_committed(steps: Steps) -> None:
    assert steps.result("offsets") == [5, 5]


def test_administrators_see_an_open_transaction(steps: Steps) -> None:
    seen = steps.result("described")
    assert (seen["state"], seen["partitions"], seen["timeout"]) == ("Ongoing", "[java-out-1]", 60_000)
    assert "java-described Ongoing" in seen["listed"]
    assert "java-one CompleteCommit" in seen["listed"]
    assert (seen["open"], seen["same producer"]) == (1, True)
    assert seen["after"] in ("PrepareCommit", "CompleteCommit")


def test_an_administrator_ends_a_transaction_that_hangs(steps: Steps) -> None:
    assert steps.result("aborted by an administrator") == {"seen": False}
