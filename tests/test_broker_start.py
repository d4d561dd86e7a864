"""What a broker says of its start while it loads its logs, and how it stops then."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import attrs
import httpx
import pytest
import trio

from tests.running_broker import WAIT_SECONDS, admin_client, connected, crashing, make_broker
from tests.waits import fail_after, within
from trio_broker.broker import StartupError
from trio_broker.storage.log_manager import LogManager

SETTINGS = {"admin_listener": "127.0.0.1:0", "num_recovery_threads_per_data_dir": "1"}
HTML = {"accept": "text/html"}


@attrs.define
class HeldLoads:
    """Loads of logs that wait: ``begun`` is set by the first, and all go on once ``released`` is."""

    begun: threading.Event = attrs.field(factory=threading.Event)
    released: threading.Event = attrs.field(factory=threading.Event)

    async def wait_begun(self) -> None:
        with fail_after(WAIT_SECONDS):
            assert await trio.to_thread.run_sync(within, self.begun.wait, WAIT_SECONDS)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldLoads]:
    held, load_partition = HeldLoads(), LogManager.load_partition

    def load_when_released(manager: LogManager, loading, load) -> None:
        held.begun.set()
        within(held.released.wait, WAIT_SECONDS)
        load_partition(manager, loading, load)

    monkeypatch.setattr(LogManager, "load_partition", load_when_released)
    yield held
    held.released.set()


@asynccontextmanager
async def starting(directory, held: HeldLoads, **settings: str) -> AsyncIterator[tuple[httpx.AsyncClient, trio.Event]]:
    """A client of the admin server of a broker whose loads are held, and what is set once the broker serves."""
    broker, serves = make_broker(directory, None, **SETTINGS, **settings), trio.Event()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await nursery.start(broker.run)
            serves.set()

        nursery.start_soon(run)
        await held.wait_begun()
        async with admin_client(broker) as admin:
            yield admin, serves
        nursery.cancel_scope.cancel()
        held.released.set()


async def crash_with_topics(directory, held: HeldLoads) -> None:
    held.released.set()
    async with crashing(directory) as broker, connected(broker) as client:
        await client.create_topic("orders", 3)
        await client.produce("orders", b"value")
    held.begun.clear()
    held.released.clear()


async def test_while_logs_are_loaded_the_admin_server_says_how_far_it_is(tmp_path, held):
    await crash_with_topics(tmp_path, held)
    async with starting(tmp_path, held, metrics_names="jmx-exporter") as (admin, serves):
        assert (await admin.get("/livez")).status_code == 200
        answer = await admin.get("/readyz")
        assert answer.status_code == 503
        assert answer.text.startswith("not ready: recovering 0 of 3 logs, 0 of 0 MiB read, after ")
        [directory] = (await admin.get("/api/v1/brokers/1/recovery")).json()["directories"]
        assert (directory["path"], directory["was_clean"]) == (str(tmp_path), False)
        assert (directory["logs"], directory["loaded_logs"], directory["segments"]) == (3, 0, 3)
        assert directory["size_bytes"] > directory["recovered_bytes"] == 0
        metrics = (await admin.get("/metrics")).text
        assert f'trio_broker_recovery_remaining_logs{{directory="{tmp_path}"}} 3.0' in metrics
        assert "kafka_server_kafkaserver_brokerstate 2.0" in metrics
        assert f'kafka_log_logmanager_remainingsegmentstorecover{{dir="{tmp_path}"}} 3.0' in metrics
        held.released.set()
        with fail_after(WAIT_SECONDS):
            await serves.wait()
        assert (await admin.get("/readyz")).status_code == 200
        progress = (await admin.get("/api/v1/brokers/1/recovery")).json()
        assert (progress["is_over"], progress["directories"][0]["loaded_logs"]) == (True, 3)
        metrics = (await admin.get("/metrics")).text
        assert f'trio_broker_recovery_remaining_logs{{directory="{tmp_path}"}} 0.0' in metrics
        assert "kafka_server_kafkaserver_brokerstate 3.0" in metrics
        assert (await admin.get("/", headers=HTML)).status_code == 200


async def test_all_else_is_answered_503_with_the_same_reason_until_clients_are_served(tmp_path, held):
    await crash_with_topics(tmp_path, held)
    async with starting(tmp_path, held) as (admin, _):
        answer = await admin.get("/api/v1/topics")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"].startswith("recovering 0 of 3 logs")
        answer = await admin.get("/topics", headers=HTML)
        assert answer.status_code == 503
        assert 'http-equiv="refresh"' in answer.text
        assert "0 of 3 logs" in answer.text
        assert str(tmp_path) not in answer.text, "it is shown before it is known who asks"
        assert (await admin.get("/nothing", headers=HTML)).status_code == 404
        assert (await admin.get("/static/page.css")).status_code == 200
        assert (await admin.get("/api/v1/openapi.json")).status_code == 200


async def test_a_stop_while_logs_are_loaded_ends_the_start_after_those_that_have_begun(tmp_path, held):
    await crash_with_topics(tmp_path, held)
    broker = make_broker(tmp_path, None, **SETTINGS)
    async with trio.open_nursery() as nursery:

        async def release() -> None:
            await held.wait_begun()
            broker.stop()
            held.released.set()

        nursery.start_soon(release)
        with pytest.raises(StartupError, match=r"^stopped while it was recovering 1 of 3 logs, .*: the next"):
            await broker.run()
    async with crashing(tmp_path) as broker:
        assert len(broker.services.replicas.log_manager.load_report.recovered) == 3


async def test_a_taken_admin_port_is_noticed_before_any_directory_is_touched(tmp_path, held):
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener[0].socket.getsockname()[1]
    with pytest.raises(StartupError, match="another program"):
        await make_broker(tmp_path / "data", None, **SETTINGS | {"admin_listener": f"127.0.0.1:{port}"}).run()
    assert not (tmp_path / "data").exists()
    await listener[0].aclose()
