"""BrokerLifecycleManager: registered, unfenced, in contact, gone under control, as a scripted controller answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.broker_lifecycle_manager import BrokerLifecycleManager, RegistrationRefused
from trio_broker.cluster.broker_liveness import BrokerHeartbeatReply
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.broker_config import load_broker_config

NODE = NodeRegistration(node_id=1, incarnation_id=bytes(15) + b"\x07", endpoints=(), rack=None)
DUPLICATE = KafkaError("another process is registered as broker 1", code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
STALE = KafkaError("broker 1 is not registered", code=ErrorCode.STALE_BROKER_EPOCH)
AWAY = KafkaError("no controller has answered", code=ErrorCode.REQUEST_TIMED_OUT)


def reply(*, fenced: bool = False, may_leave: bool = False) -> BrokerHeartbeatReply:
    return BrokerHeartbeatReply(
        is_caught_up=True, is_fenced=fenced, in_controlled_shutdown=False, should_shut_down=may_leave
    )


@attrs.define
class ScriptedController:
    """Answers with ``registrations`` and ``replies`` one after the other, the last of them for ever."""

    registrations: list[int | KafkaError]
    replies: list[BrokerHeartbeatReply | KafkaError] = attrs.Factory(lambda: [reply()])
    heartbeats: list[tuple[float, BrokerHeartbeat]] = attrs.Factory(list)

    async def register_broker(self, node: NodeRegistration) -> int:
        epoch: int = await answered(self.registrations)
        return epoch

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        self.heartbeats.append((trio.current_time(), heartbeat))
        answer: BrokerHeartbeatReply = await answered(self.replies)
        return answer


async def answered(script: list[Any]) -> Any:
    await trio.lowlevel.checkpoint()
    answer = script.pop(0) if len(script) > 1 else script[0]
    if isinstance(answer, KafkaError):
        raise answer.with_traceback(None)
    return answer


def manager(controller: ScriptedController, **settings: str) -> BrokerLifecycleManager:
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    config = load_broker_config(None, overrides, {})
    image = MetadataImage(offset=40)
    return BrokerLifecycleManager(controller, NODE, lambda: image, config, frozenset)  # type: ignore[arg-type]


@asynccontextmanager
async def running(lifecycle: BrokerLifecycleManager) -> AsyncIterator[trio.Nursery]:
    await lifecycle.register()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifecycle.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def unfenced(lifecycle: BrokerLifecycleManager) -> None:
    """Wait until the controller counts on this broker, long before the next heartbeat is due."""
    await trio.sleep(lifecycle.heartbeat_seconds / 2)
    assert not lifecycle.is_fenced


# --- registration ---


async def test_the_session_of_an_earlier_life_is_waited_for(autojump_clock):
    lifecycle = manager(ScriptedController([DUPLICATE, AWAY, 33]))
    assert await lifecycle.register() == lifecycle.broker_epoch == 33
    assert lifecycle.is_fenced


async def test_a_second_process_of_an_id_is_refused_when_the_time_is_over(autojump_clock):
    lifecycle = manager(ScriptedController([DUPLICATE]), initial_broker_registration_timeout_ms="20000")
    began = trio.current_time()
    with pytest.raises(RegistrationRefused, match="another process is registered as broker 1"):
        await lifecycle.register()
    assert 15 < trio.current_time() - began <= 20


async def test_what_does_not_pass_is_refused_at_once(autojump_clock):
    foreign = KafkaError("cluster id differs", code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    began = trio.current_time()
    with pytest.raises(RegistrationRefused, match="cluster id differs"):
        await manager(ScriptedController([foreign])).register()
    assert trio.current_time() == began


# --- contact ---


async def test_it_is_unfenced_by_a_heartbeat_that_has_its_epoch_and_how_far_it_has_read(autojump_clock):
    controller = ScriptedController([33], [reply(fenced=True), reply(fenced=True), reply()])
    lifecycle = manager(controller)
    async with running(lifecycle):
        await unfenced(lifecycle)
        await trio.sleep(10 * lifecycle.heartbeat_seconds)
    beats = [heartbeat for _, heartbeat in controller.heartbeats]
    assert {(each.broker_id, each.broker_epoch, each.current_metadata_offset) for each in beats} == {(1, 33, 40)}
    assert 12 <= len(beats) <= 14


async def test_directories_that_have_failed_are_reported_with_each_heartbeat(autojump_clock):
    controller = ScriptedController([33])
    lifecycle = manager(controller)
    failed: set[bytes] = set()
    lifecycle.offline_log_dirs = lambda: frozenset(failed)
    async with running(lifecycle):
        await trio.sleep(1.5 * lifecycle.heartbeat_seconds)
        failed.add(b"\x07" * 16)
        await trio.sleep(lifecycle.heartbeat_seconds)
        lifecycle.heartbeat_soon()
        await trio.testing.wait_all_tasks_blocked()
    reported = [heartbeat.offline_log_dirs for _, heartbeat in controller.heartbeats]
    assert reported == [frozenset(), frozenset(), {b"\x07" * 16}, {b"\x07" * 16}]


async def test_a_controller_that_is_away_ends_nothing(autojump_clock, caplog):
    controller = ScriptedController([33], [reply(), AWAY, AWAY, reply()])
    lifecycle = manager(controller)
    async with running(lifecycle):
        await trio.sleep(4.5 * lifecycle.heartbeat_seconds)
    assert len(controller.heartbeats) == 5
    assert [each.getMessage() for each in caplog.records if "no heartbeat" in each.getMessage()] == [
        "no heartbeat: no controller has answered"
    ] * 2


async def test_a_broker_that_was_taken_out_registers_again(autojump_clock):
    controller = ScriptedController([33, 50], [reply(), STALE, reply()])
    lifecycle = manager(controller)
    async with running(lifecycle):
        await trio.sleep(3 * lifecycle.heartbeat_seconds)
    assert [each.broker_epoch for _, each in controller.heartbeats][:3] == [33, 33, 50]


async def test_a_broker_that_was_replaced_by_another_process_ends(autojump_clock):
    lifecycle = manager(ScriptedController([33, DUPLICATE], [STALE]), initial_broker_registration_timeout_ms="5000")
    await lifecycle.register()
    with pytest.raises(RegistrationRefused, match="another process"):
        await lifecycle.run()
    began = trio.current_time()
    await lifecycle.shut_down()
    assert trio.current_time() == began


# --- the end ---


async def test_it_leaves_when_the_controller_lets_it_go(autojump_clock):
    controller = ScriptedController([33], [reply(), reply(), reply(), reply(may_leave=True)])
    lifecycle = manager(controller)
    async with running(lifecycle):
        await unfenced(lifecycle)
        began = trio.current_time()
        await lifecycle.shut_down()
        assert trio.current_time() - began < lifecycle.heartbeat_seconds
    assert [each.want_shut_down for _, each in controller.heartbeats] == [False, True, True, True]


async def test_it_leaves_when_the_time_is_over_though_the_controller_answers(autojump_clock, caplog):
    lifecycle = manager(ScriptedController([33], [reply()]))
    async with running(lifecycle):
        await unfenced(lifecycle)
        await lifecycle.shut_down()
    assert "has not moved all leaderships within 300 s" in caplog.records[-1].getMessage()


async def test_it_does_not_wait_for_a_controller_that_is_not_there(autojump_clock, caplog):
    lifecycle = manager(ScriptedController([33], [reply(), AWAY]), broker_session_timeout_ms="9000")
    async with running(lifecycle):
        await unfenced(lifecycle)
        began = trio.current_time()
        await lifecycle.shut_down()
        assert trio.current_time() - began == pytest.approx(18.0)
    assert "no controller has answered for 18 s" in caplog.text


async def test_it_waits_for_the_next_controller(autojump_clock):
    silence: list[BrokerHeartbeatReply | KafkaError] = [AWAY] * 100
    replies = [reply(), *silence, reply(), *silence, reply(may_leave=True)]
    lifecycle = manager(ScriptedController([33], replies), broker_session_timeout_ms="9000")
    async with running(lifecycle):
        await unfenced(lifecycle)
        await lifecycle.shut_down()
        assert lifecycle._may_leave.is_set()
