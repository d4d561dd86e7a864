"""The right broker for each question, and another attempt where that helps."""

from __future__ import annotations

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.metadata import MetadataRequest
from tests.client.scripted_client import CLIENT_ID, WAIT_SECONDS, Pauses, client_of, coordinator_at, unused_port
from tests.fakes.scripted_kafka import CLOSED, HOST, Cluster, ScriptedKafka, served_up_to
from trio_broker.client.address import Address
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.errors import BrokerUnreachable, ConnectFailed, ConnectionLost, Refused, TimedOut
from trio_broker.client.kafka_client import LOST_CONNECTIONS, REQUEST_SECONDS, KafkaClient


class Asking:
    """Something to attempt: fails in the given ways, one after the other, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def idle_client(pauses: Pauses) -> KafkaClient:
    """A client that asks nobody."""
    return KafkaClient(ConnectionSettings((Address("nowhere", 1),), CLIENT_ID), pauses.deadline())


# Whom to ask


def test_the_next_address_is_tried_when_the_first_refuses():
    with ScriptedKafka() as server:
        bootstrap = (Address(HOST, unused_port()), Address(HOST, server.port))
        with KafkaClient(ConnectionSettings(bootstrap, CLIENT_ID), Pauses().deadline()) as client:
            assert client.any_broker().address.port == server.port


def test_all_addresses_are_named_when_none_works():
    ports = [unused_port(), unused_port()]
    bootstrap = tuple(Address(HOST, port) for port in ports)
    client = KafkaClient(ConnectionSettings(bootstrap, CLIENT_ID), Pauses().deadline())
    with pytest.raises(ConnectFailed, match=f":{ports[0]}: Connection refused; .*:{ports[1]}: Connection refused"):
        client.any_broker()


def test_another_broker_is_asked_when_the_bootstrap_address_is_down():
    with ScriptedKafka(node_id=2) as other:
        with ScriptedKafka(node_id=1) as first:
            client = client_of(first)
            cluster = Cluster([first, other])
            other.answers[MetadataRequest] = cluster.metadata(MetadataRequest(topics=[]), 13)
            assert len(client.brokers().nodes) == 2
        with client:
            assert client.attempt(lambda: client.any_broker().ask(MetadataRequest(topics=[]), client.deadline)).brokers
            assert client.any_broker().address.port == other.port


def test_another_broker_is_asked_who_the_brokers_are_once_they_may_have_changed():
    """The first one may be cut off from the others, and know what was before."""
    with ScriptedKafka(node_id=1) as first, ScriptedKafka(node_id=2) as second, client_of(first, second) as client:
        asked = []
        for _ in range(3):
            asked.append(client.any_broker().address.port)
            client.forget()
        assert asked == [first.port, second.port, first.port]


def test_an_address_that_accepts_and_says_nothing_leaves_time_for_the_next():
    with ScriptedKafka({ApiVersionsRequest: CLOSED}) as broken, ScriptedKafka() as server:
        with client_of(broken, server) as client:
            assert client.any_broker().address.port == server.port
            assert client.any_broker().address.port == server.port
        assert len(broken.asked) == 1, "it is not tried again for each question"


def test_a_connection_is_used_again():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server])
        assert client.any_broker() is client.any_broker() is client.node(1) is client.controller()


def test_changes_go_to_the_controller():
    with ScriptedKafka(node_id=1) as first, ScriptedKafka(node_id=2) as second, client_of(first) as client:
        Cluster([first, second], controller_id=2)
        assert client.controller().address.port == second.port
        assert [node.node_id for node in client.brokers().nodes] == [1, 2]


@pytest.mark.parametrize("controller_id", [-1, 9])
def test_any_broker_takes_changes_where_no_controller_is_reported(controller_id: int):
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], controller_id=controller_id)
        assert client.controller().address.port == server.port


def test_a_broker_that_is_not_there_is_named():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server])
        with pytest.raises(Refused, match="broker 7: BROKER_NOT_AVAILABLE"):
            client.node(7)


def test_an_address_that_the_cluster_advertises_wrongly_is_reported_as_such():
    port = unused_port()
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], other_nodes={2: (HOST, port)})
        with pytest.raises(ConnectFailed, match=f"broker 2: cannot connect to {HOST}:{port}.*the cluster gives for it"):
            client.node(2)


def test_an_address_that_cannot_be_one_is_reported():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], other_nodes={2: (HOST, 70_000), 3: ("", -1)})
        for node_id in (2, 3):
            with pytest.raises(ConnectFailed, match=f"broker {node_id}: cannot connect to"):
                client.node(node_id)


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_the_coordinator_is_found_in_every_version(version: int):
    served = served_up_to(ApiKey.FIND_COORDINATOR, version)
    with (
        ScriptedKafka(node_id=2) as other,
        ScriptedKafka({FindCoordinatorRequest: coordinator_at(other)}, served=served) as server,
        client_of(server) as client,
    ):
        assert client.coordinator("g").address.port == other.port
        assert client.coordinator("g").address.port == other.port
        [request] = server.requests(FindCoordinatorRequest)
        assert (request.key or request.coordinator_keys) == ("g" if version < 4 else ["g"])


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_that_is_not_there_is_an_error(version: int):
    served = served_up_to(ApiKey.FIND_COORDINATOR, version)
    with ScriptedKafka(served=served) as server, client_of(server) as client:
        server.answers[FindCoordinatorRequest] = coordinator_at(server, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        with pytest.raises(Refused, match=r"coordinator of group 'g': COORDINATOR_NOT_AVAILABLE"):
            client.coordinator("g")


def test_an_error_of_all_metadata_is_an_error():
    with ScriptedKafka() as server, client_of(server) as client:
        cluster = Cluster([server])
        answer = cluster.metadata(MetadataRequest(topics=[]), 13)
        answer.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
        server.answers[MetadataRequest] = answer
        with pytest.raises(Refused, match="Metadata: REBOOTSTRAP_REQUIRED"):
            client.brokers()


# Another attempt


def test_what_is_refused_for_now_is_asked_again():
    pauses = Pauses()
    refusals = [Refused("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), Refused("g", ErrorCode.NOT_COORDINATOR)]
    assert idle_client(pauses).attempt(Asking(*refusals)) == "done"
    assert pauses.made == pytest.approx([0.1, 0.2])


def test_attempts_end_before_the_deadline_with_the_last_refusal():
    pauses = Pauses()
    asking = Asking(*[Refused("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 100)
    with pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS: its coordinator is still loading it"):
        idle_client(pauses).attempt(asking)
    assert WAIT_SECONDS - 1 <= sum(pauses.made) < WAIT_SECONDS


def test_what_is_refused_for_good_is_asked_once():
    asking = Asking(Refused("t", ErrorCode.TOPIC_ALREADY_EXISTS))
    with pytest.raises(Refused):
        idle_client(Pauses()).attempt(asking)
    assert asking.calls == 1


@pytest.mark.parametrize("repeatable", [True, False])
def test_what_may_have_been_done_is_asked_again_only_where_twice_is_once(repeatable: bool):
    asking = Asking(Refused("t", ErrorCode.REQUEST_TIMED_OUT))
    if repeatable:
        assert idle_client(Pauses()).attempt(asking, repeatable=True) == "done"
    else:
        with pytest.raises(Refused, match="REQUEST_TIMED_OUT"):
            idle_client(Pauses()).attempt(asking, repeatable=False)


def test_a_lost_question_is_asked_again_where_twice_is_once():
    assert idle_client(Pauses()).attempt(Asking(ConnectionLost("lost"), ConnectFailed("no"))) == "done"


def test_of_a_lost_change_the_outcome_is_said_to_be_unknown():
    asking = Asking(ConnectionLost("lost"))
    with pytest.raises(ConnectionLost, match="lost; whether it was done is not known"):
        idle_client(Pauses()).attempt(asking, repeatable=False)
    assert asking.calls == 1


def test_a_change_that_was_never_sent_is_sent_later():
    assert idle_client(Pauses()).attempt(Asking(ConnectFailed("no")), repeatable=False) == "done"


def test_an_address_where_nobody_listens_is_not_tried_for_long():
    pauses = Pauses()
    asking = Asking(*[ConnectFailed("no")] * 100)
    with pytest.raises(ConnectFailed):
        idle_client(pauses).attempt(asking)
    assert asking.calls == LOST_CONNECTIONS
    assert sum(pauses.made) < 1


@pytest.mark.parametrize(("brokers", "is_waited_for"), [(1, False), (2, True)])
def test_a_broker_that_is_lost_is_waited_for_where_another_may_get_its_place(brokers: int, is_waited_for: bool):
    with ScriptedKafka(node_id=1) as first, ScriptedKafka(node_id=2) as second, client_of(first) as client:
        Cluster([first, second][:brokers])
        client.brokers()
        asking = Asking(*[BrokerUnreachable("broker 1: no")] * 12)
        if is_waited_for:
            assert client.attempt(asking, repeatable=False) == "done"
        else:
            with pytest.raises(ConnectFailed):
                client.attempt(asking)
        assert asking.calls == (13 if is_waited_for else LOST_CONNECTIONS)


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_broker_that_hangs_leaves_time_for_another_attempt_where_twice_is_once(repeatable: bool):
    client = idle_client(Pauses())
    left: list[float] = []

    def ask() -> str:
        left.append(client.deadline.remaining_seconds)
        if len(left) == 1:
            raise TimedOut("no answer")
        return "done"

    if repeatable:
        assert client.attempt(ask) == "done"
        assert left == [REQUEST_SECONDS, REQUEST_SECONDS]
    else:
        with pytest.raises(TimedOut):
            client.attempt(ask, repeatable=False)
        assert left == [WAIT_SECONDS]


def test_after_a_refusal_the_coordinator_is_looked_for_again():
    with (
        ScriptedKafka(node_id=1) as first,
        ScriptedKafka(node_id=2) as second,
        client_of(first) as client,
    ):
        first.answers[FindCoordinatorRequest] = [coordinator_at(first), coordinator_at(second)]
        found: list[int] = []

        def ask() -> None:
            found.append(client.coordinator("g").address.port)
            if len(found) == 1:
                raise Refused("g", ErrorCode.NOT_COORDINATOR)

        client.attempt(ask)
        assert found == [first.port, second.port]


def test_a_broken_connection_is_replaced():
    with ScriptedKafka() as server, client_of(server) as client:
        cluster = Cluster([server])
        server.answers[MetadataRequest] = [CLOSED, cluster.metadata]
        assert client.attempt(client.brokers).cluster_id == "scripted"
