"""The broker as a whole: how it starts, what it follows, how it stops."""

from __future__ import annotations

import logging
import signal
import socket
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest
from tests.running_broker import (
    WAIT_SECONDS,
    admin_client,
    connected,
    crashing,
    fetch_request,
    hold_in_flight,
    make_broker,
    produce_request,
    replace_handler,
    running,
    serve_as_process,
    until,
)
from tests.waits import fail_after
from trio_broker.broker import StartupError, announcement, single_startup_error
from trio_broker.concurrency import steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import listener_endpoints
from trio_broker.handlers.support.registry import served_apis
from trio_broker.network import connection as network_connection

CLEAN_MARKER = ".kafka_cleanshutdown"


def brokers_alone() -> MetadataRequest:
    return MetadataRequest(topics=[])


async def start_expecting_failure(broker) -> StartupError:
    """Run ``broker``, which cannot start; returns why."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
    error = single_startup_error(caught.value)
    assert error is not None, caught.value
    return error


async def admin_status(broker, path, **headers) -> int:
    async with admin_client(broker) as client:
        return (await client.get(path, headers=headers)).status_code


# --- starting ---


async def test_once_started_clients_are_served(tmp_path):
    async with running(tmp_path) as broker, connected(broker) as client:
        response = await client.ask(brokers_alone(), 12)
        assert [(each.host, each.port) for each in response.brokers] == [("127.0.0.1", broker.bound_endpoints[0].port)]


async def test_port_0_is_replaced_by_the_port_that_was_bound_in_all_that_is_reported(tmp_path):
    async with running(tmp_path) as broker:
        port = broker.server.bound_addresses["PLAINTEXT"][1]
        assert port > 0
        assert broker.advertised["PLAINTEXT"].port == port
        assert broker.services.node.advertised["PLAINTEXT"].port == port


async def test_a_taken_port_is_reported_before_the_data_directory_is_touched(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        error = await start_expecting_failure(make_broker(tmp_path / "data", listeners=listener))
    assert listener in str(error)
    assert "Address already in use" in str(error)
    assert "choose a different one with --port or listeners" in str(error)
    assert not (tmp_path / "data").exists()


async def test_a_taken_admin_port_is_reported_and_lets_go_of_everything(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = await start_expecting_failure(make_broker(tmp_path, admin_listener=address))
    assert address in str(error)
    assert "choose a different one with --admin-port or admin.listener" in str(error)
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await client.ask(brokers_alone(), 12)


async def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_goes_on(tmp_path):
    async with running(tmp_path) as broker:
        second = make_broker(tmp_path)
        error = await start_expecting_failure(second)
        assert "in use by another broker" in str(error)
        async with connected(broker) as client:
            assert await client.ask(brokers_alone(), 12)


async def test_a_broker_that_could_not_start_leaves_no_port_open(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with running(tmp_path):
        await start_expecting_failure(make_broker(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}"))
    socket.create_server(("127.0.0.1", port)).close()


async def test_the_admin_server_is_there_only_if_it_is_wanted(tmp_path):
    async with running(tmp_path) as broker:
        assert broker.admin_url is None
    async with running(tmp_path, admin_listener="127.0.0.1:0") as broker:
        assert str(broker.admin_url).startswith("http://127.0.0.1:")


async def test_a_browser_that_dials_a_kafka_port_is_sent_to_the_admin_page(tmp_path):
    async with (
        running(tmp_path, admin_listener="127.0.0.1:0") as broker,
        admin_client(broker) as client,
    ):
        answer = await client.get(f"http://127.0.0.1:{broker.bound_endpoints[0].port}/")
        assert answer.status_code == 400
        assert str(broker.admin_url) in answer.text


async def test_without_a_word_about_it_only_this_machine_is_served():
    [endpoint] = listener_endpoints(BrokerConfig({}).socket_server)
    assert str(endpoint) == "PLAINTEXT://127.0.0.1:9092"


@pytest.mark.parametrize(("host", "warnings"), [("127.0.0.1", 0), ("localhost", 0), ("0.0.0.0", 1), ("", 1)])
async def test_a_listener_that_other_machines_reach_is_warned_of_loudly(tmp_path, caplog, host, warnings):
    async with running(tmp_path, listeners=f"PLAINTEXT://{host}:0") as broker:
        reported = [each.getMessage() for each in caplog.records if "WITHOUT LOGIN OR ENCRYPTION" in each.getMessage()]
        assert len(reported) == warnings
        assert all(str(broker.bound_endpoints[0]) in line for line in reported)


async def test_an_admin_address_that_others_reach_is_refused_without_a_login(tmp_path):
    error = await start_expecting_failure(make_broker(tmp_path, admin_listener="0.0.0.0:0"))
    assert str(error).endswith("set admin.token.file")
    async with running(tmp_path, admin_listener="0.0.0.0:0", admin_token_file=str(tmp_path / "tokens")) as broker:
        assert str(broker.admin_url).startswith("http://0.0.0.0:")


async def test_the_admin_page_may_be_given_further_names(tmp_path):
    settings = {"admin_listener": "127.0.0.1:0", "admin_allowed_hosts": "broker.example,other.example"}
    async with running(tmp_path, **settings) as broker:
        assert await admin_status(broker, "/healthz", host="other.example") == 200
        assert await admin_status(broker, "/healthz", host="foreign.example") == 403


async def test_the_announcement_says_where_it_listens_where_the_data_lies_and_what_an_answer_is_worth(tmp_path):
    async with running(tmp_path) as broker:
        lines = announcement(broker)
        assert f"listening  {broker.bound_endpoints[0]}" in lines
        assert f"data       {tmp_path}" in lines
        assert "durability page-cache: acks=all is acknowledged once the operating system has it" in lines
        assert "admin      off" in lines


# --- no request can end it ---


@pytest.mark.parametrize(
    "garbage", [b"HELO example.org\r\n", b"\x00\x00\x00\x00", b"\xff" * 64, b"\x00\x00\x00\x10" * 8]
)
async def test_garbage_ends_its_connection_and_nothing_else(tmp_path, garbage):
    async with running(tmp_path) as broker:
        async with connected(broker) as vandal:
            await vandal.stream.send_all(garbage)
            with fail_after(WAIT_SECONDS), pytest.raises(EOFError):
                await vandal._exactly(1)
        async with connected(broker) as client:
            assert await client.ask(brokers_alone(), 12)


async def test_an_api_that_is_not_served_ends_its_connection(tmp_path, caplog):
    async with running(tmp_path) as broker, connected(broker) as client:
        frame = b"\x7f\x00\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01x"
        await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
        with fail_after(WAIT_SECONDS), pytest.raises(EOFError):
            await client._exactly(1)


async def test_a_bug_in_a_handler_is_answered_and_the_connection_goes_on(tmp_path, caplog):
    async def fail(request, context):
        raise LookupError("our bug")

    async with running(tmp_path) as broker, connected(broker) as client:
        replace_handler(broker, ApiKey.METADATA, fail)
        assert (await client.ask(brokers_alone(), 13)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        broker.dispatcher.apis = served_apis()
        assert (await client.ask(brokers_alone(), 13)).error_code == ErrorCode.NONE


# --- settings that change while it runs ---


async def test_what_a_client_changes_takes_effect_on_the_pools(tmp_path):
    async with running(tmp_path, num_network_threads="3", num_io_threads="4") as broker, connected(broker) as client:
        changes = {"num_network_threads": "5", "num_io_threads": "8", "queued_max_requests": "9"}
        assert await client.alter_broker_config(str(broker.services.node.node_id), **changes) == ErrorCode.NONE
        statistics = broker.server.statistics()
        assert len(statistics.processors) == 5
        assert len(statistics.handlers.slots) == 8
        assert statistics.channel.capacity == 9
        assert broker.services.replicas.io_limiter.total_tokens == 8


async def test_a_changed_pool_is_that_large_after_a_restart_too(tmp_path):
    async with running(tmp_path, num_io_threads="4") as broker, connected(broker) as client:
        node = str(broker.services.node.node_id)
        await client.alter_broker_config(node, num_io_threads="8", queued_max_requests="9", num_network_threads="2")
    async with running(tmp_path, num_io_threads="4") as broker:
        statistics = broker.server.statistics()
        assert broker.config.socket_server.num_io_threads == len(statistics.handlers.slots) == 8
        assert broker.config.socket_server.num_network_threads == len(statistics.processors) == 2
        assert statistics.channel.capacity == 9
        assert broker.services.replicas.io_limiter.total_tokens == 8


async def test_a_reset_setting_goes_back_to_the_static_one(tmp_path):
    async with running(tmp_path, num_io_threads="4") as broker, connected(broker) as client:
        node = str(broker.services.node.node_id)
        await client.alter_broker_config(node, num_io_threads="8")
        await client.alter_broker_config(node, num_io_threads=None)
        assert len(broker.server.statistics().handlers.slots) == 4


async def test_a_default_of_the_cluster_counts_for_this_broker_too(tmp_path):
    async with running(tmp_path, num_io_threads="4") as broker, connected(broker) as client:
        assert await client.alter_broker_config("", num_io_threads="6") == ErrorCode.NONE
        assert len(broker.server.statistics().handlers.slots) == 6


async def test_a_pool_more_than_doubled_is_refused_and_stays(tmp_path):
    async with running(tmp_path, num_io_threads="4") as broker, connected(broker) as client:
        node = str(broker.services.node.node_id)
        assert await client.alter_broker_config(node, num_io_threads="9") == ErrorCode.INVALID_REQUEST
        assert len(broker.server.statistics().handlers.slots) == 4


async def test_limits_on_connections_follow_at_once(tmp_path):
    async with running(tmp_path) as broker, connected(broker) as client:
        node = str(broker.services.node.node_id)
        await client.alter_broker_config(node, max_connections="17", max_connections_per_ip="3")
        assert (broker.server.config.max_connections, broker.server.config.max_connections_per_ip) == (17, 3)


async def test_a_limit_of_one_listener_holds_connections_of_that_listener_back(tmp_path):
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
    }
    async with running(tmp_path, **listeners) as broker, connected(broker) as client:
        node, [_, external] = str(broker.services.node.node_id), broker.bound_endpoints
        own = {"listener_name_external_max_connections": "1"}
        assert await client.alter_broker_config(node, **own) == ErrorCode.NONE
        quotas = broker.server.quotas
        async with await trio.open_tcp_stream("127.0.0.1", external.port) as first:
            await until(lambda: quotas.by_listener["EXTERNAL"] == 1)
            async with await trio.open_tcp_stream("127.0.0.1", external.port), connected(broker):
                # The second one there is accepted, counted for its address, and not let in.
                await until(lambda: quotas.by_address["127.0.0.1"] == 4)
                await until(lambda: quotas.by_listener["PLAINTEXT"] == 2)
                assert quotas.by_listener["EXTERNAL"] == 1
                await first.aclose()
                await until(lambda: quotas.by_address["127.0.0.1"] == 3)
                await until(lambda: quotas.by_listener["EXTERNAL"] == 1)


async def test_what_nobody_changed_has_its_static_value_in_the_server(tmp_path):
    async with running(tmp_path, max_connections="21", queued_max_requests="33") as broker:
        assert broker.server.config.max_connections == 21
        assert broker.server.statistics().channel.capacity == 33


# --- stopping ---


async def test_a_stop_ends_run_and_closes_the_port(tmp_path):
    async with running(tmp_path) as broker:
        port = broker.bound_endpoints[0].port
    assert broker.stopped.is_set()
    with pytest.raises(OSError, match="failed"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_stopping_twice_is_stopping_once(tmp_path):
    async with running(tmp_path) as broker:
        broker.stop()
        broker.stop()
        assert broker.is_stopping


async def test_a_broker_asked_to_stop_before_it_runs_stops_cleanly(tmp_path):
    broker = make_broker(tmp_path)
    broker.stop()
    with fail_after(WAIT_SECONDS):
        await broker.run()
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_a_stop_answers_a_waiting_fetch_at_once(tmp_path):
    async with running(tmp_path, shutdown_grace_ms="600000") as broker, connected(broker) as client:
        await client.create_topic("orders")
        poll = fetch_request("orders", max_wait_ms=600_000, min_bytes=1)
        await client.send(poll, 12)
        await until(lambda: broker.server.statistics().handlers.delayed)
        with fail_after(WAIT_SECONDS):
            broker.stop()
            response = await client.receive(poll, 12)
            await broker.stopped.wait()
    partition = response.responses[0].partitions[0]
    assert (partition.error_code, len(partition.records)) == (ErrorCode.NONE, 0)


async def test_a_stop_lets_a_request_in_flight_finish(tmp_path):
    async with running(tmp_path, shutdown_grace_ms="600000") as broker, connected(broker) as client:
        working, finish = trio.Event(), trio.Event()
        real: Any = served_apis()[ApiKey.METADATA].handler

        async def slow(request, context):
            working.set()
            await finish.wait()
            return await steps.run_steps(real(request, context))

        replace_handler(broker, ApiKey.METADATA, slow)
        await client.send(brokers_alone(), 12)
        await working.wait()
        broker.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert not broker.stopped.is_set()
        finish.set()
        with fail_after(WAIT_SECONDS):
            assert len((await client.receive(brokers_alone(), 12)).brokers) == 1
            await broker.stopped.wait()
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_until_the_last_request_is_answered_the_admin_server_says_that_the_broker_stops(tmp_path):
    settings = {"admin_listener": "127.0.0.1:0", "shutdown_grace_ms": "600000"}
    async with running(tmp_path, **settings) as broker, connected(broker) as client:
        finish = await hold_in_flight(broker, client, brokers_alone(), 12)
        async with admin_client(broker) as admin:
            assert (await admin.get("/readyz")).status_code == 200
            async with admin.stream("GET", "/api/v1/brokers/1/events") as events:
                broker.stop()
                answer = await admin.get("/readyz")
                assert (answer.status_code, answer.text) == (503, "not ready: the broker is stopping\n")
                finish.set()
                with fail_after(WAIT_SECONDS):
                    assert [line async for line in events.aiter_lines() if line.startswith("retry")]
                    await broker.stopped.wait()
        with pytest.raises(httpx.TransportError):
            await admin_status(broker, "/readyz")
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_a_stop_waits_no_longer_than_the_grace(tmp_path):
    async with running(tmp_path, shutdown_grace_ms="0") as broker, connected(broker) as client:
        working = trio.Event()

        async def stuck(request, context):
            working.set()
            await trio.sleep_forever()

        replace_handler(broker, ApiKey.METADATA, stuck)
        await client.send(brokers_alone(), 12)
        await working.wait()
        with fail_after(WAIT_SECONDS):
            broker.stop()
            with pytest.raises(EOFError):
                await client.receive(brokers_alone(), 12)
            await broker.stopped.wait()
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_a_stop_finishes_what_waits_for_the_disk(tmp_path):
    async with running(tmp_path, log_durability="fsync") as broker, connected(broker) as client:
        await client.create_topic("orders")
        produce = produce_request("orders", b"kept")
        await client.send(produce, 9)
        # What the broker has read it answers; a request still on its way it need not.
        await until(lambda: broker.server.handlers.statistics().in_flight)
        broker.stop()
        response = await client.receive(produce, 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await client.values("orders") == [b"kept"]


async def test_a_clean_stop_leaves_the_marker_and_a_start_takes_it_away(tmp_path):
    async with running(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert (tmp_path / CLEAN_MARKER).exists()
    async with running(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()


# --- crashing ---


async def test_a_crash_leaves_no_marker(tmp_path):
    async with crashing(tmp_path):
        pass
    assert not (tmp_path / CLEAN_MARKER).exists()


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_what_was_acknowledged_before_a_crash_of_the_process_is_there_after_it(tmp_path, durability):
    async with crashing(tmp_path, log_durability=durability) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        assert await client.produce("orders", b"two") == ErrorCode.NONE
    async with running(tmp_path, log_durability=durability) as broker, connected(broker) as client:
        assert await client.values("orders") == [b"one", b"two"]


async def test_a_torn_batch_at_the_end_of_a_log_is_cut_and_the_log_goes_on(tmp_path):
    async with crashing(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        await client.produce("orders", b"one")
    segment = tmp_path / "orders-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[: len(whole) // 2])
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await client.values("orders") == [b"one"]
        await client.produce("orders", b"two")
        assert await client.values("orders") == [b"one", b"two"]


async def test_every_start_begins_new_leader_epochs_whatever_ended_the_life_before(tmp_path):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders", 2)
        epochs = [leader_epochs(broker)]
    async with crashing(tmp_path) as broker:
        epochs.append(leader_epochs(broker))
    async with running(tmp_path) as broker, connected(broker) as client:
        epochs.append(leader_epochs(broker))
        response = await client.ask(MetadataRequest(topics=None), 12)
        reported = [partition.leader_epoch for partition in response.topics[0].partitions]
    assert epochs == [[0, 0], [1, 1], [2, 2]]
    assert reported == [2, 2]


def leader_epochs(broker) -> list[int]:
    return [partition.leader_epoch for partition in broker.services.replicas.partitions()]


async def test_a_topic_whose_log_cannot_be_opened_does_not_end_the_others(tmp_path, caplog):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("broken")
        await client.create_topic("whole")
        await client.produce("whole", b"one")
    segment = tmp_path / "broken-0" / f"{0:020}.log"
    segment.unlink()
    segment.mkdir()
    async with running(tmp_path) as broker, connected(broker) as client:
        assert await client.values("whole") == [b"one"]
        assert await client.produce("whole", b"two") == ErrorCode.NONE
        assert await client.produce("broken", b"lost") == ErrorCode.KAFKA_STORAGE_ERROR
    assert any("broken-0" in record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)


# --- signals ---


async def test_the_first_signal_stops_cleanly(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    broker, lines = make_broker(tmp_path), []

    def announce(line: str) -> None:
        lines.append(line)
        if line.startswith("admin"):
            signal.raise_signal(signal.SIGTERM)

    with fail_after(WAIT_SECONDS):
        await serve_as_process(broker, announce)
    assert [line.split()[0] for line in lines] == [
        "trio-broker",
        "data",
        "durability",
        "listening",
        "admin",
        "try",
        "stop",
    ]
    assert (tmp_path / CLEAN_MARKER).exists()
    assert caplog.records[-1].getMessage() == "stopped"


async def test_the_second_signal_does_not_wait_for_the_grace(tmp_path, nursery):
    broker = make_broker(tmp_path, shutdown_grace_ms="600000")
    serving, working, ended = trio.Event(), trio.Event(), trio.Event()

    async def stuck(request, context):
        working.set()
        await trio.sleep_forever()

    async def serve():
        await serve_as_process(broker, lambda line: serving.set())
        ended.set()

    nursery.start_soon(serve)
    await serving.wait()
    async with connected(broker) as client:
        replace_handler(broker, ApiKey.METADATA, stuck)
        await client.send(brokers_alone(), 12)
        await working.wait()
        signal.raise_signal(signal.SIGINT)
        await until(lambda: broker.is_stopping)
        signal.raise_signal(signal.SIGINT)
        with fail_after(WAIT_SECONDS):
            await ended.wait()
    assert not (tmp_path / CLEAN_MARKER).exists()


async def test_a_fetch_of_a_client_that_has_gone_waits_no_longer(tmp_path, monkeypatch):
    """A client may ask for a wait of 24 days; what waits keeps its task, and its place at each partition."""
    monkeypatch.setattr(network_connection, "DELAYED_PROBE_SECONDS", 0.0)
    async with running(tmp_path) as broker:
        replicas = broker.services.replicas
        async with connected(broker) as connection:
            await connection.create_topic("t")
            await connection.send(fetch_request("t", max_wait_ms=(1 << 31) - 1, min_bytes=1), 11)
            await until(lambda: replicas.statistics().delayed_fetches == 1)
        await until(lambda: replicas.statistics().delayed_fetches == 0)
        await until(lambda: broker.server.statistics().handlers.in_flight == 0)
