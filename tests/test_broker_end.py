"""How a broker that is a process ends: by which signals and failures, and what its exit code says."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest
from tests.running_broker import (
    WAIT_SECONDS,
    admin_client,
    connected,
    make_broker,
    replace_handler,
    running,
    serve_as_process,
    until,
    view_of,
)
from tests.waits import fail_after
from trio_broker import broker as broker_module
from trio_broker.broker import UncleanStop
from trio_broker.cli.start import start
from trio_broker.testing.process import BrokerProcess

CLEAN_MARKER = ".kafka_cleanshutdown"
METADATA = "__cluster_metadata-0"


def fail_with_io_error(*arguments, **named):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def serving(nursery, broker) -> trio.Event:
    """Run ``broker`` as its process does; returns an event that is set at its end."""
    started, ended = trio.Event(), trio.Event()

    async def serve():
        await serve_as_process(broker, lambda line: started.set())
        ended.set()

    nursery.start_soon(serve)
    await started.wait()
    return ended


async def test_sighup_stops_cleanly(tmp_path, nursery):
    broker = make_broker(tmp_path)
    ended = await serving(nursery, broker)
    signal.raise_signal(signal.SIGHUP)
    with fail_after(WAIT_SECONDS):
        await ended.wait()
    assert (tmp_path / CLEAN_MARKER).exists()
    assert broker.failure == ""


def test_the_exit_code_after_a_hang_up_is_0(tmp_path):
    with BrokerProcess(tmp_path) as process:
        assert process._end(signal.SIGHUP) == 0


def test_the_exit_code_after_an_unclean_stop_is_1_with_one_line(tmp_path, monkeypatch):
    def interrupted(config, *, announce, declaration):
        raise UncleanStop("SIGTERM again: stopped at once")

    monkeypatch.setattr(broker_module, "run_until_signalled", interrupted)
    result = CliRunner().invoke(start, ["--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr == "trio-broker: SIGTERM again: stopped at once\n"


async def test_a_broker_whose_only_disk_died_ends_by_itself(tmp_path, nursery, monkeypatch):
    broker = make_broker(tmp_path, log_durability="fsync")
    ended = await serving(nursery, broker)
    async with connected(broker) as client:
        await client.create_topic("orders")
        monkeypatch.setattr(os, "fdatasync", fail_with_io_error)
        assert await client.produce("orders", b"one") == ErrorCode.KAFKA_STORAGE_ERROR
    with fail_after(WAIT_SECONDS):
        await ended.wait()
    assert broker.failure.startswith("every data directory failed: ")
    assert not (tmp_path / CLEAN_MARKER).exists()


@pytest.fixture
async def ending(tmp_path, nursery, monkeypatch):
    """A broker that ends since its only disk died, and its end; a request in flight keeps it from being quick."""
    broker, working = make_broker(tmp_path, log_durability="fsync", shutdown_grace_ms="600000"), trio.Event()

    async def stuck(request, context):
        working.set()
        await trio.sleep_forever()

    ended = await serving(nursery, broker)
    async with connected(broker) as stuck_client, connected(broker) as client:
        await client.create_topic("orders")
        replace_handler(broker, ApiKey.METADATA, stuck)
        await stuck_client.send(MetadataRequest(topics=[]), 12)
        await working.wait()
        monkeypatch.setattr(os, "fdatasync", fail_with_io_error)
        assert await client.produce("orders", b"one") == ErrorCode.KAFKA_STORAGE_ERROR
        await until(lambda: broker.is_stopping)
        yield broker, ended


async def test_the_first_signal_while_the_broker_ends_by_itself_changes_nothing_and_says_so(ending, caplog):
    broker, ended = ending
    reason = broker.failure
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: "already stopping" in caplog.text)
    assert f"already stopping: {reason}; SIGTERM again ends it at once" in caplog.messages
    assert not ended.is_set()
    assert broker.failure == reason


async def test_the_second_signal_while_the_broker_ends_by_itself_ends_it_and_keeps_the_reason(ending, caplog):
    broker, ended = ending
    reason = broker.failure
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: "already stopping" in caplog.text)
    signal.raise_signal(signal.SIGTERM)
    with fail_after(WAIT_SECONDS):
        await ended.wait()
    assert reason.startswith("every data directory failed: ")
    assert broker.failure == f"{reason}; SIGTERM again: stopped at once; the next start checks the logs"


async def test_a_dead_metadata_disk_refuses_changes_and_serves_what_lies_elsewhere(tmp_path, monkeypatch):
    """Kafka halts here. The partitions of other disks are no worse for it, so they are served on."""
    directories = tmp_path / "a", tmp_path / "b"
    settings = {"log_dirs": ",".join(map(str, directories)), "admin_listener": "127.0.0.1:0"}
    async with running(tmp_path, **settings) as broker, connected(broker) as client:
        await client.create_topic("orders", 2)
        by_directory = {each.log.directory.parent: each for each in broker.services.replicas.partitions()}
        assert set(by_directory) == set(directories)
        index = by_directory[directories[1]].topic_partition.partition
        broker.services.replicas.failures.storage_failed(by_directory[directories[0]], OSError(errno.EIO, "gone"))
        readiness = view_of(broker).node.identity.readiness()
        assert readiness.reason.startswith("the metadata log failed: ")
        async with admin_client(broker) as admin:
            answer = await admin.get("/readyz")
            assert (answer.status_code, answer.text) == (503, f"not ready: {readiness.reason}\n")
        assert await client.try_create_topic("payments") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.produce("orders", b"one", partition=index) == ErrorCode.NONE
        assert not broker.services.log_dir_failures.all_failed.is_set()
    assert broker.failure == "a data directory was not closed properly: the next start checks its logs"
    assert (directories[1] / CLEAN_MARKER).exists()


async def test_a_metadata_log_that_cannot_be_written_takes_the_partitions_beside_it_offline(tmp_path, monkeypatch):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", fail_with_io_error)
            assert await client.try_create_topic("payments") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.produce("orders", b"one") == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.services.log_dir_failures.all_failed.is_set()


def renamed(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def removed(directory: Path) -> None:
    """In two steps: threads of the broker may be making files in it."""
    renamed(directory)
    shutil.rmtree(directory.with_name("elsewhere"))


def without_metadata(directory: Path) -> None:
    shutil.rmtree(directory / METADATA)


def emptied_but_for_hidden_files(directory: Path) -> None:
    """As by ``rm -rf directory/*``."""
    for path in directory.glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("remove", [removed, renamed, without_metadata, emptied_but_for_hidden_files])
async def test_a_broker_whose_only_directory_is_gone_ends_at_the_next_checkpoint(tmp_path, nursery, remove):
    directory = tmp_path / "data"
    broker = make_broker(directory, log_durability="fsync")
    ended = await serving(nursery, broker)
    async with connected(broker) as client:
        await client.create_topic("orders")
        remove(directory)
        await broker.services.replicas.log_maintenance.write_high_watermarks()
        assert await client.produce("orders", b"one") == ErrorCode.KAFKA_STORAGE_ERROR
    with fail_after(WAIT_SECONDS):
        await ended.wait()
    assert broker.failure.startswith("every data directory failed: ")
    assert "removed, renamed or unmounted while the broker runs" in broker.failure


def replaced(directory: Path) -> None:
    """As by a copy that is put back."""
    renamed(directory)
    shutil.copytree(directory.with_name("elsewhere"), directory)


def without_its_log(directory: Path) -> None:
    (directory / f"{0:020}.log").unlink()


@pytest.mark.parametrize("remove", [shutil.rmtree, renamed, replaced, without_its_log])
@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_a_partition_whose_files_are_gone_goes_offline_alone_at_the_next_checkpoint(
    tmp_path, remove, durability, caplog
):
    async with running(tmp_path, log_durability=durability) as broker, connected(broker) as client:
        maintenance = broker.services.replicas.log_maintenance
        await client.create_topic("orders", 2)
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        await maintenance.write_high_watermarks()
        remove(tmp_path / "orders-0")
        assert await client.produce("orders", b"two") == ErrorCode.NONE, "nobody knows yet"
        await maintenance.write_high_watermarks()
        assert await client.produce("orders", b"three") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.produce("orders", b"one", partition=1) == ErrorCode.NONE
        view = view_of(broker)
        assert view.node.identity.readiness().ready
        [gone, whole] = await view.cluster.topics.partitions("orders") or ()
        assert "removed, renamed or replaced while the broker runs" in str(gone.error)
        assert whole.error is None
    assert "orders-0 goes offline: " in caplog.text
    assert "orders-1 goes offline" not in caplog.text
    assert not (tmp_path / CLEAN_MARKER).exists()


@pytest.mark.parametrize("remove", [shutil.rmtree, without_its_log])
async def test_records_in_files_that_are_gone_are_missed_by_the_stop_and_by_the_next_start(tmp_path, remove, caplog):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE
        await broker.services.replicas.log_maintenance.write_checkpoints()
        remove(tmp_path / "orders-0")
        assert await client.produce("orders", b"two") == ErrorCode.NONE, "nobody knows yet"
    assert "orders-0 was not closed properly" in caplog.text
    assert not (tmp_path / CLEAN_MARKER).exists()
    caplog.clear()
    async with running(tmp_path) as broker, connected(broker) as client:
        assert "orders-0: no file of its records is there: those up to 2 are lost, the log goes on at 2" in caplog.text
        assert await client.produce("orders", b"three") == ErrorCode.NONE
        assert broker.services.replicas.topic("orders").partition(0).log_end_offset == 3


async def test_a_stop_that_was_clean_names_the_records_that_are_gone_at_the_next_start(tmp_path, caplog):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        assert await client.produce("orders", b"one") == ErrorCode.NONE
    assert (tmp_path / CLEAN_MARKER).exists()
    shutil.rmtree(tmp_path / "orders-0")
    async with running(tmp_path) as broker, connected(broker) as client:
        assert "ERROR" in [each.levelname for each in caplog.records if "those up to 1 are lost" in each.message]
        assert await client.produce("orders", b"two") == ErrorCode.NONE
        assert broker.services.replicas.topic("orders").partition(0).log_end_offset == 2


async def test_no_topic_is_created_in_a_metadata_log_that_is_gone(tmp_path):
    async with running(tmp_path, admin_listener="127.0.0.1:0") as broker, connected(broker) as client:
        shutil.rmtree(tmp_path / METADATA)
        assert await client.try_create_topic("orders") == ErrorCode.KAFKA_STORAGE_ERROR
        async with admin_client(broker) as admin:
            answer = await admin.get("/readyz")
            assert answer.status_code == 503
            assert "removed, renamed or unmounted" in answer.text
    assert broker.failure == "a data directory was not closed properly: the next start checks its logs"
    assert not (tmp_path / CLEAN_MARKER).exists()


async def test_one_of_two_directories_that_is_gone_goes_offline_alone(tmp_path):
    directories = tmp_path / "a", tmp_path / "b"
    async with running(tmp_path, log_dirs=",".join(map(str, directories))) as broker, connected(broker) as client:
        await client.create_topic("orders", 2)
        index_of = {
            each.log.directory.parent: each.topic_partition.partition for each in broker.services.replicas.partitions()
        }
        removed(directories[1])
        await broker.services.replicas.log_maintenance.write_high_watermarks()
        answers = [await client.produce("orders", b"one", partition=index_of[each]) for each in directories]
        assert answers == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert await client.try_create_topic("payments") == ErrorCode.NONE
        assert not directories[1].exists()
        assert view_of(broker).node.identity.readiness().ready


async def test_a_metadata_log_that_cannot_be_closed_is_an_unclean_stop(tmp_path, monkeypatch):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        monkeypatch.setattr(broker.services.metadata_log.log.epochs, "write", fail_with_io_error)
    assert broker.failure == "a data directory was not closed properly: the next start checks its logs"
    assert not (tmp_path / CLEAN_MARKER).exists()


@pytest.mark.parametrize("clean", [True, False])
async def test_the_failure_says_whether_every_directory_was_closed(tmp_path, clean, monkeypatch):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders")
        if not clean:
            monkeypatch.setattr(os, "fdatasync", fail_with_io_error)
            await client.produce("orders", b"one")
    assert bool(broker.failure) is not clean
