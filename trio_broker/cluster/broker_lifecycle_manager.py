"""The life of this broker as one of several: it registers, is unfenced, keeps in contact, and leaves under control.

A broker that has registered is fenced: others do not count on it. It is unfenced by the first heartbeat after it has
read the metadata up to its registration. From then on it leads what the controller gives it, as long as the controller
hears from it. It knows by its own image whether it is fenced; a heartbeat says so earlier.

A controlled shutdown moves its leaderships first. It ends when the controller says so, which is when every other broker
has read that, or after ``CONTROLLED_SHUTDOWN_SECONDS``: then the others find out by its session. Nor does it wait for
a controller that is not there.

Source: Kafka's BrokerLifecycleManager (KIP-631).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Set
from typing import Final

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.broker_liveness import BrokerHeartbeatReply
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.features import reason_against_features
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

CONTROLLED_SHUTDOWN_SECONDS: Final = 300.0
"""Kafka's number: a controller may be elected meanwhile, and ten thousand leaderships moved."""

SILENT_SESSIONS: Final = 2
"""Sessions without an answer, after which a shutdown waits for no controller: a lost one is replaced in the first, and
the next one answers in the second."""

SHUTDOWN_HEARTBEAT_SECONDS: Final = 0.1
"""Between two heartbeats of a broker that leaves: its partitions wait for their next leaders."""

RETRIED_REGISTRATION: Final = frozenset(
    {ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER}
)
"""What passes: the session of an earlier life of this broker ends, and a controller is elected."""


class RegistrationRefused(Exception):
    """This broker cannot be one of the cluster; the text says why in one line."""


@attrs.define(eq=False)
class BrokerLifecycleManager:
    """``register`` comes first, then ``run`` is a task of the broker.

    ``image`` is the metadata as far as this broker has read them; ``offline_log_dirs`` are the ids of its data
    directories that have failed since it started, whose replicas may lead no more. ``unfenced`` is set when the others
    count on this broker for the first time, ``dismissed`` when it is to stop without having asked for it: its
    decommission is complete.
    """

    controller: ControllerClient
    node: NodeRegistration
    image: Callable[[], MetadataImage]
    config: BrokerConfig
    offline_log_dirs: Callable[[], Set[bytes]]
    broker_epoch: int = attrs.field(default=NO_BROKER_EPOCH, init=False)
    is_fenced: bool = attrs.field(default=True, init=False)
    unfenced: trio.Event = attrs.field(factory=trio.Event, init=False)
    dismissed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_decommissioned: bool = attrs.field(default=False, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _has_news: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the controller is to hear at once what the next heartbeat says."""
    _may_leave: trio.Event = attrs.field(factory=trio.Event, init=False)
    _answered_at: float = attrs.field(default=-math.inf, init=False)
    """When the controller has answered the last time."""

    @property
    def heartbeat_seconds(self) -> float:
        """Between two heartbeats."""
        return self.config.node.broker_heartbeat_interval_ms / 1000

    async def register(self) -> int:
        """Register, and return the broker epoch. What passes is waited for, for the time of the registration.

        Raises:
            RegistrationRefused: the cluster has another broker of this id, or this one does not fit into it.
        """
        seconds = self.config.node.initial_broker_registration_timeout_ms / 1000
        deadline, reason = trio.current_time() + seconds, ""
        while True:
            try:
                self.broker_epoch = await self.controller.register_broker(self.node)
            except KafkaError as error:
                if error.code not in RETRIED_REGISTRATION or trio.current_time() + self.heartbeat_seconds > deadline:
                    raise RegistrationRefused(self._reason(error)) from error
                if self._reason(error) != reason:
                    reason = self._reason(error)
                    log.warning("registering again for up to %g s: %s", seconds, reason)
            else:
                log.info("broker %d is registered in epoch %d", self.node.node_id, self.broker_epoch)
                return self.broker_epoch
            await trio.sleep(self.heartbeat_seconds)

    def _reason(self, error: KafkaError) -> str:
        """Why the registration is refused, of which another broker's answer has the code alone."""
        broker_id = self.node.node_id
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f"another process is registered as broker {broker_id}, and in contact: give this one another node.id"
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            reason = reason_against_features(self.image(), self.node.features)
            return f"broker {broker_id} is not registered: it {reason or f'has other features: {error}'}"
        return f"broker {broker_id} is not registered: {error.code.name}: {error}"

    async def run(self) -> None:
        """Keep in contact until the controller lets this broker go, or until cancelled.

        Raises:
            RegistrationRefused: another process has taken the place of this broker, which has nothing to move then.
        """
        while not self._may_leave.is_set():
            try:
                self._follow(await self._heartbeat())
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    if self._is_decommissioned:
                        # The answer that it may leave was lost.
                        self._leave()
                        return
                    # Taken out of the cluster, or replaced by another process, which ``register`` finds out.
                    log.warning("broker %d registers again: %s", self.node.node_id, error)
                    await self._register_again()
                    continue
                log.warning("no heartbeat: %s", error)
            await self._pause()

    def _leave(self) -> None:
        self._may_leave.set()
        if not self._is_leaving:
            log.warning("broker %d has no replicas any more and is decommissioned: it stops", self.node.node_id)
            self.dismissed.set()

    async def _register_again(self) -> None:
        try:
            await self.register()
        except RegistrationRefused:
            # It leads nothing that could be moved, and no heartbeat would be answered otherwise.
            self._may_leave.set()
            raise

    def heartbeat_soon(self) -> None:
        """Tell the controller what has changed, such as a data directory that has failed, without waiting."""
        self._has_news.set()

    async def _heartbeat(self) -> BrokerHeartbeatReply:
        # Before the look: what comes during it is for the next one.
        self._has_news = trio.Event()
        image = self.image()
        if self.node.node_id in image.brokers:
            self._is_decommissioned = self.node.node_id in image.leaving_brokers
        return await self.controller.heartbeat(
            BrokerHeartbeat(
                broker_id=self.node.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=image.offset,
                want_shut_down=self._is_leaving,
                offline_log_dirs=self.offline_log_dirs(),
            )
        )

    def _follow(self, reply: BrokerHeartbeatReply) -> None:
        self._answered_at = trio.current_time()
        if reply.is_fenced != self.is_fenced:
            self.is_fenced = reply.is_fenced
            log.info("broker %d is %s", self.node.node_id, "fenced" if reply.is_fenced else "unfenced")
        if not reply.is_fenced:
            self.unfenced.set()
        if reply.should_shut_down:
            self._leave()

    async def _pause(self) -> None:
        if self._is_leaving:
            await trio.sleep(SHUTDOWN_HEARTBEAT_SECONDS)
        elif self.is_fenced and not self.unfenced.is_set():
            # Until it is unfenced nobody can use it, and what it waits for takes milliseconds.
            await trio.sleep(min(SHUTDOWN_HEARTBEAT_SECONDS, self.heartbeat_seconds))
        else:
            with trio.move_on_after(self.heartbeat_seconds):
                await self._has_news.wait()

    async def shut_down(self) -> None:
        """Leave under control: return once the controller lets this broker go, while ``run`` runs."""
        self._is_leaving = True
        self._has_news.set()
        with trio.move_on_after(CONTROLLED_SHUTDOWN_SECONDS) as scope:
            await self._until_let_go()
        if scope.cancelled_caught:
            log.warning("the controller has not moved all leaderships within %g s", CONTROLLED_SHUTDOWN_SECONDS)

    async def _until_let_go(self) -> None:
        """Return also when no controller has answered for so long that others lead, if anybody can."""
        began, seconds = trio.current_time(), SILENT_SESSIONS * self.config.node.broker_session_timeout_ms / 1000
        while not self._may_leave.is_set():
            deadline = max(began, self._answered_at) + seconds
            if trio.current_time() >= deadline:
                log.warning("no controller has answered for %g s: leaderships are not moved", seconds)
                return
            with trio.move_on_at(deadline):
                await self._may_leave.wait()
