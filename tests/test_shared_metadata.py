"""Brokers that share their metadata: they start from empty directories, find the controller, and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kafka_wire.records.batch import read_batches
from tests.running_broker import connected, until, view_of
from tests.waits import fail_after
from trio_broker.broker import Broker, StartupError
from trio_broker.changes.change import ChangeChannel
from trio_broker.cluster.broker_metadata_publisher import BrokerMetadataPublisher
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.features import TRANSACTION_VERSION, FeatureLevels, own_features
from trio_broker.cluster.local_metadata_store import LocalMetadataStore
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.shared_metadata import SharedMetadata
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ValueChange
from trio_broker.declaration.declaration import Declaration, DeclaredTopic
from trio_broker.runtime.real import real_runtime

WAIT_SECONDS = 30
CLUSTER_ID = "Vt3kq0ZcQ3y8dW1nQeN5Aw"


@attrs.define(eq=False)
class Cluster:
    """Brokers of this event loop; each has a directory of its own below ``directory``, and so has their store."""

    directory: Path
    shared: SharedMetadata
    nursery: trio.Nursery
    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)

    @property
    def store(self) -> LocalMetadataStore:
        assert isinstance(self.shared.store, LocalMetadataStore)
        return self.shared.store

    declaration: Declaration | None = None

    def make(self, node_id: int, **settings: str) -> Broker:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig(
            {
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "admin.listener": "",
                "log.durability": "page-cache",
                "log.dirs": str(self.directory / str(node_id)),
                "broker.heartbeat.interval.ms": "100",
                "offsets.topic.num.partitions": "1",
                **given,
            }
        )
        return Broker(config, shared_metadata=self.shared, declaration=self.declaration)

    async def start(self, node_id: int, **settings: str) -> Broker:
        broker = self.make(node_id, **settings)
        self.scopes[node_id] = trio.CancelScope()
        await self.nursery.start(self._run, broker, self.scopes[node_id])
        lifecycle = broker.services.lifecycle
        assert lifecycle is not None
        await until(lambda: not lifecycle.is_fenced)
        return broker

    async def _run(self, broker: Broker, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Broker]) -> None:
        with scope:
            await broker.run(task_status=task_status)

    def kill(self, node_id: int) -> None:
        """End a broker with nothing finished."""
        self.scopes[node_id].cancel()

    async def stop(self, broker: Broker) -> None:
        broker.stop()
        await broker.stopped.wait()

    async def followed(self, *brokers: Broker) -> None:
        """Wait until all parts of the brokers follow what is decided."""
        end = await self.store.end_offset()
        for broker in brokers:
            assert isinstance(broker.services.controller, Controller)
            await broker.services.controller.loader.wait_loaded(end)


@asynccontextmanager
async def opened_cluster(directory: Path) -> AsyncIterator[Cluster]:
    runtime = real_runtime()
    (directory / "store").mkdir(parents=True, exist_ok=True)
    log = MetadataLog.open(directory / "store", runtime)
    shared = SharedMetadata(LocalMetadataStore(log, runtime.workers), CLUSTER_ID)
    with fail_after(WAIT_SECONDS):
        async with trio.open_nursery() as nursery:
            yield Cluster(directory, shared, nursery)
            nursery.cancel_scope.cancel()
    log.close()


@pytest.fixture
async def cluster(tmp_path):
    async with opened_cluster(tmp_path) as opened:
        yield opened


def stored_batches(directory: Path) -> list[bytes]:
    """The batches of a metadata log of one segment."""
    [segment] = (directory / "__cluster_metadata-0").glob("*.log")
    return [bytes(batch.buffer) for batch in read_batches(segment.read_bytes())]


async def test_empty_directories_become_a_cluster(cluster):
    one, two = await cluster.start(1), await cluster.start(2)
    await cluster.followed(one, two)
    for broker in (one, two):
        image = broker.services.metadata_cache.image
        assert [each.is_active for each in image.brokers.values()] == [True, True]
        assert broker.services.node.cluster_id == CLUSTER_ID
    assert one.services.controller.writer.is_active
    assert not two.services.controller.writer.is_active


async def test_a_topic_is_created_by_any_broker_and_known_to_all(cluster):
    one, two = await cluster.start(1), await cluster.start(2)
    for broker, name in ((one, "a"), (two, "b")):
        async with connected(broker) as client:
            assert await client.try_create_topic(name, 2) == ErrorCode.NONE
    await cluster.followed(one, two)
    for broker in (one, two):
        assert {"a", "b"} <= set(broker.services.metadata_cache.image.topics)
    leaders = {each.leader for each in one.services.metadata_cache.image.topics["a"].partitions.values()}
    assert leaders == {1, 2}
    for broker in (one, two):
        journal = {each.resource: each.origin.address for each in broker.services.changes.changes}
        assert {"a": "127.0.0.1 by broker 1", "b": "127.0.0.1 by broker 2 at 127.0.0.1"}.items() <= journal.items()


async def test_each_broker_has_a_copy_of_the_metadata_byte_for_byte(cluster, tmp_path):
    one, two = await cluster.start(1), await cluster.start(2)
    async with connected(two) as client:
        await client.create_topic("t")
    await cluster.followed(one, two)
    decided = stored_batches(tmp_path / "store")
    assert stored_batches(tmp_path / "1") == stored_batches(tmp_path / "2") == decided


async def test_a_broker_that_was_away_reads_what_was_decided_meanwhile(cluster):
    one, two = await cluster.start(1), await cluster.start(2)
    await cluster.stop(two)
    async with connected(one) as client:
        await client.create_topic("meanwhile")
    two = await cluster.start(2)
    await cluster.followed(two)
    assert "meanwhile" in two.services.metadata_cache.image.topics
    assert two.services.metadata_cache.image.brokers[2].is_active


async def test_the_other_broker_decides_when_the_controller_has_stopped(cluster):
    one, two = await cluster.start(1), await cluster.start(2)
    await cluster.stop(one)
    async with connected(two) as client:
        assert await client.try_create_topic("t") == ErrorCode.NONE
    assert two.services.controller.writer.is_active
    assert two.services.metadata_cache.image.brokers[1].fenced


async def created_on(broker: Broker, *broker_ids: int) -> None:
    """Create the topic ``t`` of one partition, whose replicas are on these brokers."""
    async with connected(broker) as client:
        await client.create_placed_topic("t", broker_ids)


async def test_a_decommissioned_broker_hands_over_what_it_has_and_leaves(cluster):
    """Here it is the controller, too."""
    three, one, two = await cluster.start(3), await cluster.start(1), await cluster.start(2)
    assert three.services.controller.writer.is_active
    await created_on(two, 3)
    await cluster.followed(three)
    async with connected(three) as client:
        assert await client.produce("t", b"value") == ErrorCode.NONE
    decommission = view_of(two).cluster.decommission
    preview = await decommission.begin(3, changed_by="test", dry_run=True)
    assert [(each.topic, each.replicas) for each in preview.moves] == [("t", (3,))]
    assert not two.services.metadata_cache.image.leaving_brokers
    await decommission.begin(3, changed_by="test", dry_run=False)
    await three.stopped.wait()
    assert three.failure == ""
    await until(lambda: 3 not in one.services.metadata_cache.image.brokers)
    await cluster.followed(one, two)
    for broker in (one, two):
        asked, done = [each for each in broker.services.changes.changes if each.resource == "3"]
        assert asked.values == (ValueChange("broker.decommission", "false", "true"),)
        assert asked.origin.address == "127.0.0.1 by broker 2"
        assert done.origin.channel is ChangeChannel.BROKER
    leader = one.services.metadata_cache.image.topics["t"].partitions[0].leader
    async with connected({1: one, 2: two}[leader]) as client:
        assert await client.values("t") == [b"value"]


async def test_what_is_acknowledged_by_all_is_there_when_its_leader_has_stopped(cluster):
    brokers = {node_id: await cluster.start(node_id) for node_id in (1, 2, 3)}
    await created_on(brokers[1], 2, 3)
    await cluster.followed(*brokers.values())
    async with connected(brokers[2]) as client:
        assert await client.produce("t", b"value") == ErrorCode.NONE
    await cluster.stop(brokers[2])
    await cluster.followed(brokers[1], brokers[3])
    assert brokers[1].services.metadata_cache.image.topics["t"].partitions[0].leader == 3
    async with connected(brokers[3]) as client:
        assert await client.values("t") == [b"value"]


async def test_the_broker_of_a_controller_that_was_killed_is_fenced_by_its_successor(cluster):
    await cluster.start(1, broker_session_timeout_ms="600000")
    two = await cluster.start(2, broker_session_timeout_ms="600000")
    cluster.kill(1)
    await until(lambda: two.services.controller.writer.is_active)
    await until(lambda: two.services.metadata_cache.image.brokers[1].fenced)


async def test_all_stop_and_the_cluster_goes_on_in_another_process(tmp_path):
    for name in ("first", "second"):
        async with opened_cluster(tmp_path) as cluster:
            one, two = await cluster.start(1), await cluster.start(2)
            async with connected(two) as client:
                await client.create_topic(name)
            await cluster.followed(one, two)
            known = set(one.services.metadata_cache.image.topics)
            await cluster.stop(two)
            await cluster.stop(one)
    assert {"first", "second"} <= known


async def test_a_broker_that_was_away_for_long_begins_with_a_snapshot(cluster, tmp_path):
    one, two = await cluster.start(1), await cluster.start(2)
    await cluster.stop(two)
    async with connected(one) as client:
        await client.create_topic("t")
    await one.services.controller.snapshots.take()
    two = await cluster.start(2)
    assert "t" in two.services.metadata_cache.image.topics
    assert list((tmp_path / "2" / "__cluster_metadata-0").glob("*.checkpoint"))
    await cluster.stop(two)
    two = await cluster.start(2)
    assert "t" in two.services.metadata_cache.image.topics


async def refusal(broker: Broker) -> str:
    with pytest.raises(StartupError) as refused:
        await broker.run()
    return str(refused.value)


async def update_transactions(broker: Broker, level: int) -> tuple[int, str]:
    """Finalize a level of ``transaction.version``; returns the error."""
    update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level)
    async with connected(broker) as client:
        response = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    return response.error_code, response.error_message or ""


async def test_brokers_of_two_versions_are_one_cluster_and_go_on_to_the_newer_when_all_are(cluster, monkeypatch):
    """The older one knows one level less of a feature."""
    older = {**own_features(), TRANSACTION_VERSION: FeatureLevels(0, 1)}
    monkeypatch.setattr("trio_broker.bootstrap.own_features", lambda: older)
    one, two = await cluster.start(1), await cluster.start(2)
    assert one.services.metadata_cache.image.features[TRANSACTION_VERSION] == 1
    monkeypatch.setattr("trio_broker.bootstrap.own_features", own_features)
    await cluster.stop(one)
    one = await cluster.start(1)
    code, text = await update_transactions(one, 2)
    assert (code, text[-36:]) == (ErrorCode.INVALID_UPDATE_VERSION, " Broker 2 only supports versions 0-1")
    await cluster.stop(two)
    two = await cluster.start(2)
    assert await update_transactions(one, 2) == (ErrorCode.NONE, "")
    await cluster.followed(one, two)
    assert two.services.metadata_cache.image.features[TRANSACTION_VERSION] == 2
    monkeypatch.setattr("trio_broker.bootstrap.own_features", lambda: older)
    assert await refusal(cluster.make(3)) == (
        "broker 3 is not registered: it does not support finalized version 2 of transaction.version. The broker wants a"
        " version between 0 and 1, inclusive."
    )


async def test_a_second_process_of_the_controller_s_id_is_refused_and_takes_nothing_away(cluster, tmp_path):
    one = await cluster.start(1)
    epoch = cluster.store.controller().epoch
    second = cluster.make(1, log_dirs=str(tmp_path / "second"), initial_broker_registration_timeout_ms="500")
    assert "another process is registered as broker 1, and in contact" in await refusal(second)
    assert one.services.controller.writer.is_active
    assert cluster.store.controller().epoch == epoch


async def test_a_store_that_was_set_back_is_refused(tmp_path):
    async with opened_cluster(tmp_path) as cluster:
        await cluster.stop(await cluster.start(1))
    async with opened_cluster(tmp_path / "other") as cluster:
        cluster.directory = tmp_path
        assert "it is another cluster's, or was set back" in await refusal(cluster.make(1))


async def test_a_directory_of_another_cluster_is_refused(tmp_path):
    async with opened_cluster(tmp_path) as cluster:
        await cluster.stop(await cluster.start(1))
        cluster.shared = attrs.evolve(cluster.shared, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
        assert f"belongs to cluster {CLUSTER_ID}, expected AAAAAAAAAAAAAAAAAAAAAA" in await refusal(cluster.make(1))


async def test_a_controller_that_stops_lets_another_decide_before_it_takes_no_more_heartbeats(cluster, monkeypatch):
    one, two = await cluster.start(1), await cluster.start(2)
    going_on, drain = trio.Event(), one.server.drain

    async def drain_slowly(deadline):
        await going_on.wait()
        await drain(deadline)

    monkeypatch.setattr(one.server, "drain", drain_slowly)
    one.stop()
    await until(lambda: two.services.controller.writer.is_active)
    assert not two.services.metadata_cache.image.brokers[2].fenced
    going_on.set()
    await one.stopped.wait()


async def test_a_broker_that_was_replaced_by_another_process_stops_and_says_why(cluster):
    one, two = await cluster.start(1), await cluster.start(2, initial_broker_registration_timeout_ms="500")
    controller, lifecycle = one.services.controller, two.services.lifecycle
    # As after a pause that was longer than its session.
    controller.sessions.end(2)
    await controller.register_broker(attrs.evolve(lifecycle.node, incarnation_id=bytes(16)))
    with fail_after(WAIT_SECONDS):
        await two.stopped.wait()
    assert two.failure == "another process is registered as broker 2, and in contact: give this one another node.id"


async def test_an_id_that_a_live_broker_has_is_refused(cluster, tmp_path):
    await cluster.start(1)
    await cluster.start(2)
    again = cluster.make(2, log_dirs=str(tmp_path / "again"), initial_broker_registration_timeout_ms="1000")
    assert "another process is registered as broker 2, and in contact" in await refusal(again)


async def test_what_is_followed_at_a_start_is_fetched_from_then_on(tmp_path, monkeypatch):
    """The fetchers are there before the partitions, which are not applied to them again."""
    apply, fetchers = BrokerMetadataPublisher.apply_image, []

    async def note(self, image):
        fetchers.append(self.replicas.fetchers)
        await apply(self, image)

    monkeypatch.setattr(BrokerMetadataPublisher, "apply_image", note)
    async with opened_cluster(tmp_path) as cluster:
        broker = await cluster.start(1)
        assert fetchers == [broker.services.replicas.fetchers]
        assert None not in fetchers


async def test_what_is_declared_is_made_once_there_are_brokers_for_it_and_until_then_none_is_ready(
    cluster, monkeypatch
):
    monkeypatch.setattr("trio_broker.cluster.declarations.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("trio_broker.cluster.declarations.MAX_PAUSE_SECONDS", 0.01)
    cluster.declaration = Declaration((DeclaredTopic(name="orders", replication_factor=2, origin="cluster.toml"),))
    one = await cluster.start(1)
    identity = view_of(one).node.identity
    await until(lambda: "replication" in identity.readiness().reason.lower())
    assert not identity.readiness().ready
    other = await cluster.start(2)
    await until(lambda: identity.readiness().ready and view_of(other).node.identity.readiness().ready)
    brokers = (one, other)
    await until(lambda: all("orders" in each.services.metadata_cache.image.topics for each in brokers))
