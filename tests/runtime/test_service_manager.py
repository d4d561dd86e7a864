"""The notifications for systemd, over a real datagram socket."""

from __future__ import annotations

import os
import signal
import socket

import pytest
import trio
import trio.testing

from tests.running_broker import make_broker
from trio_broker.broker import serve_until_signalled, service_state
from trio_broker.runtime.service_manager import ServiceManager, ServiceReport, ServiceState, service_manager

STARTING = ServiceState(is_ready=False, is_stopping=False, status="recovering")
SERVING = ServiceState(is_ready=True, is_stopping=False, status="serving")
STOPPING = ServiceState(is_ready=False, is_stopping=True, status="stopping")


class Received:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self.socket.setblocking(False)

    def __call__(self) -> list[list[str]]:
        """What has come since the last call: the assignments of each datagram."""
        datagrams = []
        while True:
            try:
                datagrams.append(self.socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return datagrams


@pytest.fixture(params=["path", "abstract"])
def address(request, tmp_path):
    return str(tmp_path / "notify") if request.param == "path" else f"@trio-broker-test-{os.getpid()}"


@pytest.fixture
def received(address):
    manager = Received(address)
    yield manager
    manager.socket.close()


@pytest.mark.parametrize("text", ["", "vsock:2:1234", "notify"])
def test_without_a_unix_socket_there_is_no_manager(text):
    assert service_manager({"NOTIFY_SOCKET": text}, 1) is None
    assert service_manager({}, 1) is None


def test_a_watchdog_is_that_of_this_process_only():
    given = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000"}
    assert service_manager(given, 7) == ServiceManager("/run/n", 30.0)
    assert service_manager({**given, "WATCHDOG_PID": "7"}, 7) == ServiceManager("/run/n", 30.0)
    assert service_manager({**given, "WATCHDOG_PID": "8"}, 7) == ServiceManager("/run/n")
    assert service_manager({**given, "WATCHDOG_USEC": "soon"}, 7) == ServiceManager("/run/n")


def test_each_change_of_the_state_is_sent_once(address, received):
    states = [STARTING, STARTING, SERVING, SERVING, STOPPING, STOPPING]
    report = ServiceReport(ServiceManager(address), iter(states).__next__)
    for _ in states:
        report.send()
    assert received() == [["STATUS=recovering"], ["READY=1", "STATUS=serving"], ["STOPPING=1", "STATUS=stopping"]]


def test_a_broker_that_serves_again_is_not_ready_a_second_time(address, received):
    failing = ServiceState(is_ready=False, is_stopping=False, status="a disk failed")
    states = [SERVING, failing, SERVING]
    report = ServiceReport(ServiceManager(address), iter(states).__next__)
    for _ in states:
        report.send()
    assert received() == [["READY=1", "STATUS=serving"], ["STATUS=a disk failed"], ["STATUS=serving"]]


async def test_the_watchdog_is_fed_twice_in_its_time(address, received, autojump_clock, nursery):
    report = ServiceReport(ServiceManager(address, watchdog_seconds=1.0), lambda: SERVING)
    nursery.start_soon(report.run, trio.sleep_forever)
    await trio.sleep(2.25)
    assert [each.count("WATCHDOG=1") for each in received()] == [1] * 5
    nursery.cancel_scope.cancel()


async def test_the_beginning_of_the_stop_is_reported_at_once(address, received, autojump_clock, nursery):
    stop = trio.Event()
    report = ServiceReport(ServiceManager(address), lambda: STOPPING if stop.is_set() else SERVING)
    nursery.start_soon(report.run, stop.wait)
    await trio.testing.wait_all_tasks_blocked()
    stop.set()
    await trio.testing.wait_all_tasks_blocked()
    assert received() == [["READY=1", "STATUS=serving"], ["STOPPING=1", "STATUS=stopping"]]
    nursery.cancel_scope.cancel()


def test_a_manager_that_is_gone_or_does_not_read_hinders_nothing(tmp_path):
    ServiceManager(str(tmp_path / "gone")).notify("READY=1")
    received = Received(str(tmp_path / "full"))
    for _ in range(5000):
        ServiceManager(str(tmp_path / "full")).notify("WATCHDOG=1")
    received.socket.close()


async def test_a_broker_is_ready_once_it_serves_and_says_when_it_stops(tmp_path, received, address, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    broker = make_broker(tmp_path / "data")
    assert not service_state(broker).is_ready

    def announce(line: str) -> None:
        if line.startswith("stop"):
            assert not any("READY=1" in each for each in received())
            nursery.start_soon(stop)

    async def stop() -> None:
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGTERM)

    async with trio.open_nursery() as nursery:
        await serve_until_signalled(broker, announce)
    sent = [assignment for each in received() for assignment in each if assignment != "WATCHDOG=1"]
    (endpoint,) = broker.bound_endpoints
    assert sent == ["READY=1", f"STATUS=serving clients on {endpoint}", "STOPPING=1", "STATUS=stopping"]
