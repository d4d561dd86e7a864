"""The socket server: Acceptors, Processors, the RequestChannel and the handlers, as one nursery.

    SocketServer.run
    ├─ HandlerPool        num.io.threads slots
    ├─ Processor × n      num.network.threads, a task with a selector each
    ├─ Acceptor × m       one per listener
    └─ housekeeping       once a second: idle and stuck connections, changed limits, idle ratios

Everything runs in one Trio loop, so no state here needs a lock. A Processor is a share of the connections and one
worker thread for the disk reads of their responses; resizing redistributes the connections, each between two of its
requests.

Stopping has two steps, so that a broker can do other things between them: ``stop_accepting`` closes the ports,
``drain`` lets what is in flight be answered until a deadline and then ends ``run``.

Source: Kafka's SocketServer.
"""

from __future__ import annotations

import itertools
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import attrs
import trio

from trio_broker.common.busy_time import Utilization
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.concurrency.barrier import Backoff, Barrier, start_background
from trio_broker.config.quota_config import QuotaConfig
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Accept, Acceptor, Listener, accept_from, listen
from trio_broker.network.channel import PlaintextChannel
from trio_broker.network.connection import Connection, Reassign, new_connection, reason_to_close
from trio_broker.network.connection_quotas import ConnectionQuotas
from trio_broker.network.departed_clients import DepartedClients
from trio_broker.network.errors import STOPPING, CloseConnection
from trio_broker.network.failed_handshakes import FailedHandshakes, is_failed_handshake
from trio_broker.network.handler_pool import Handle, HandlerPool
from trio_broker.network.loop_monitor import LoopMonitor
from trio_broker.network.processor import IsServed, Processor, ProcessorContext
from trio_broker.network.request_channel import ConnectionInfo, RequestChannel
from trio_broker.network.request_memory_pool import RequestMemoryPool
from trio_broker.network.statistics import SocketServerStatistics
from trio_broker.network.tls_channel import HandshakeKeys, TlsChannel
from trio_broker.network.unread_requests import UnreadRequests
from trio_broker.quota.quota_managers import QuotaManagers
from trio_broker.runtime.clock import Clock, SystemClock
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.runtime.network import Network, RealNetwork
from trio_broker.runtime.real_workers import RealWorkers
from trio_broker.runtime.workers import Workers
from trio_broker.security.sasl.server_authenticator import SaslServerAuthenticator

log = logging.getLogger(__name__)

NewAuthenticator = Callable[[ConnectionInfo], SaslServerAuthenticator | None]
"""Makes what a new connection's client logs in with; None on a listener without a login."""

SAMPLE_SECONDS = 1.0
"""Between two sweeps of the connections, and two samples of the ratios: short enough for a live chart."""


@attrs.frozen
class Transfer:
    """``count`` connections to move between two Processors, which are given by their index in a list."""

    source: int
    target: int
    count: int


class SocketServer:
    """Serves ``handle`` on ``listeners``.

    ``is_served(api_key, version)`` says which requests ``handle`` may be asked; any other ends its connection.
    ``before_accept`` raises OSError while accepting has to pause. ``tls`` has those listeners by name that speak TLS.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        handle: Handle,
        is_served: IsServed,
        config: SocketServerConfig | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        workers: Workers | None = None,
        accept: Accept = accept_from,
        before_accept: Callable[[], object] = lambda: None,
        tls: Mapping[str, HandshakeKeys] = MappingProxyType({}),
        new_authenticator: NewAuthenticator = lambda info: None,
        client_quotas: QuotaManagers | None = None,
    ) -> None:
        self.listeners = tuple(listeners)
        self.config = attrs.evolve(config or SocketServerConfig())  # ours: ``reconfigure`` changes it in place
        self.clock = clock or SystemClock()
        self.channel = RequestChannel(self.config.queued_max_requests)
        self.handlers = HandlerPool(self.channel, handle, self.config.num_io_threads)
        workers = workers or RealWorkers()
        self._network = network or RealNetwork()
        self.client_quotas = client_quotas or QuotaManagers(self.clock, QuotaConfig())
        self.quotas = ConnectionQuotas(
            self.config,
            self.clock,
            workers,
            descriptors=self._network.max_connections(),
            admits_address=self.client_quotas.admits_connection,
        )
        self.memory_pool = RequestMemoryPool(self.config)
        self.monitor = LoopMonitor()
        self.failed_handshakes = FailedHandshakes()
        self.departed_clients = DepartedClients()
        self.unread_requests = UnreadRequests()
        self._loop_reader = Utilization(self.monitor.busy_time)
        self._context = ProcessorContext(
            self.channel,
            self.handlers,
            is_served,
            self.clock,
            workers,
            self.memory_pool,
            self._assign,
            self._connection_closed,
            self.client_quotas.record_request,
            self.client_quotas.login_throttle_seconds,
            self.monitor,
        )
        self._tls = tls
        self._accept = accept
        self._before_accept = before_accept
        self._new_authenticator = new_authenticator
        self._acceptors: list[Acceptor] = []
        self._active: list[Processor] = []
        self._retiring: dict[Processor, None] = {}
        self._connection_ids = itertools.count(1)
        self._nursery: trio.Nursery | None = None
        self._closed: Counter[str] = Counter()
        self._sample_listeners: list[Callable[[SocketServerStatistics], None]] = []
        self._retired = RetiredProcessors()
        for _ in range(self.config.num_network_threads):
            self._add_processor()

    # ---- start and stop

    def bind(self) -> Mapping[str, tuple[str, int]]:
        """Open the ports, so that a taken one is known before anything runs; returns ``bound_addresses``.

        Raises:
            OSError: an address is unknown or taken; no port is left open.
        """
        assert not self._acceptors, "the ports are open"
        try:
            for listener in self.listeners:
                self._acceptors.append(self._make_acceptor(listener, listen(listener, self.config, self._network)))
        except OSError:
            for acceptor in self._acceptors:
                acceptor.sock.close()
            self._acceptors.clear()
            raise
        return self.bound_addresses

    @property
    def bound_addresses(self) -> Mapping[str, tuple[str, int]]:
        """Host and port of each listener by its name, with the port that the system chose where 0 was asked for."""
        return {acceptor.listener.name: acceptor.bound_address for acceptor in self._acceptors}

    async def run(
        self, *, task_status: trio.TaskStatus[Mapping[str, tuple[str, int]]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled or drained; ``started`` carries ``bound_addresses``.

        Raises:
            OSError: from ``bind``, unless that was called before.
        """
        if not self._acceptors:
            self.bind()
        try:
            with self.monitor.installed():
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.handlers.run)
                    self._nursery = nursery
                    for processor in self._active:
                        self._start_processor(nursery, processor)
                    await self.quotas.refresh_overrides()
                    for acceptor in self._acceptors:
                        nursery.start_soon(acceptor.run, name=f"acceptor {acceptor.listener.name}")
                    start_background(nursery, "housekeeping of the socket server", self._run_housekeeping)
                    task_status.started(self.bound_addresses)
        finally:
            self._nursery = None
            for acceptor in self._acceptors:
                acceptor.sock.close()

    def name_admin_page(self, url: str) -> None:
        """Set the address of the admin page, which HTTP clients at a Kafka port receive from now on."""
        self._context.admin_url = url

    def stop_accepting(self) -> None:
        """Close the ports. Connections that exist go on."""
        for acceptor in self._acceptors:
            acceptor.stop()

    async def drain(self, deadline: float) -> None:
        """Let every request in flight be answered, close all connections, and end ``run``.

        Idle connections close at once, and whatever is not answered at ``deadline`` (of ``trio.current_time``) is
        cancelled. The caller first ends the waits of delayed requests, which otherwise last until the deadline.
        """
        self.stop_accepting()
        # Set before the commands are given: a connection that is on its way between two Processors is in no dictionary.
        self._context.stopping = STOPPING
        for connection in self.connections():
            connection.give_command(STOPPING)
        in_flight = self.handlers.statistics().in_flight
        log.info("stopping: %d connections, %d requests in flight", self.quotas.total, in_flight)
        with trio.move_on_at(deadline):
            await self.quotas.wait_until_none()
        if self.quotas.total:
            log.warning("stopping: %d connections closed unanswered at the deadline", self.quotas.total)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # ---- live settings

    def reconfigure(self, config: SocketServerConfig) -> None:
        """Apply the live settings of ``config``: resize the pools and replace the limits."""
        self.resize_network_threads(config.num_network_threads)
        self.resize_io_threads(config.num_io_threads)
        self.resize_queue(config.queued_max_requests)
        # The acceptors, the quotas and the connections share this object and read their limits where they need them.
        for field in attrs.fields(SocketServerConfig):
            setattr(self.config, field.name, getattr(config, field.name))

    def resize_network_threads(self, count: int) -> None:
        """Serve with ``count`` Processors from now on, the connections evenly distributed among them."""
        assert count >= 1, f"{count} Processors would serve nobody"
        self.config.num_network_threads = count
        before = len(self._active)
        while len(self._active) < count:
            processor = self._add_processor()
            if self._nursery is not None:
                self._start_processor(self._nursery, processor)
        leaving = [self._active.pop() for _ in range(len(self._active) - count)]
        for processor in leaving:
            processor.retire()
            if self._nursery is not None:
                self._retiring[processor] = None
        self._rebalance_connections(leaving)
        if count != before:
            log.info("processors resized from %d to %d", before, count)

    def resize_io_threads(self, count: int) -> None:
        """Handle ``count`` requests at a time from now on."""
        self.config.num_io_threads = count
        self.handlers.resize(count)

    def resize_queue(self, capacity: int) -> None:
        """Let ``capacity`` requests wait for a handler from now on."""
        self.config.queued_max_requests = capacity
        self.channel.capacity = capacity

    # ---- readings

    def statistics(self) -> SocketServerStatistics:
        now_ns = perf_counter_ns()
        processors = [*self._active, *self._retiring]
        return SocketServerStatistics(
            measured_ns=now_ns,
            loop_busy_ratio=self._loop_reader.ratio,
            loop_busy_ns=self.monitor.busy_time.busy_until(now_ns),
            loop_passes=self.monitor.passes,
            channel=self.channel.statistics(),
            handlers=self.handlers.statistics(),
            processors=tuple(processor.statistics() for processor in processors),
            connections=self.quotas.total,
            connections_accepted=sum(acceptor.accepted for acceptor in self._acceptors),
            connections_rejected=dict(self.quotas.refused),
            connections_closed=dict(self._closed),
            requests=self._retired.requests + sum(processor.requests for processor in processors),
            bytes_in=self._retired.bytes_in + sum(processor.bytes_in for processor in processors),
            bytes_out=self._retired.bytes_out + sum(processor.sender.bytes_out for processor in processors),
            request_bytes_held=self.memory_pool.held,
            unread_bytes=self.unread_requests.unread_bytes,
            backlog=self.unread_requests.largest,
        )

    def sample(self, now_ns: int) -> None:
        """Close an interval of every ratio and peak, and pass the readings to those who subscribed."""
        self._loop_reader.sample(now_ns)
        self.monitor.roll()
        self.handlers.sample(now_ns)
        self.channel.roll_peak()
        self.channel.metrics.roll(now_ns)
        for processor in (*self._active, *self._retiring):
            processor.idle.sample(now_ns)
        self.unread_requests.look(self.connections(), self.clock.monotonic())
        if self._sample_listeners:
            statistics = self.statistics()
            for listener in self._sample_listeners:
                listener(statistics)

    def subscribe(self, listener: Callable[[SocketServerStatistics], None]) -> None:
        """Call ``listener`` on the event loop at the end of each interval, about once in ``SAMPLE_SECONDS``."""
        self._sample_listeners.append(listener)

    def sweep(self) -> None:
        """Close the connections that have waited too long, and resume waits that a changed limit has ended."""
        now = self.clock.monotonic()
        for connection in self.connections():
            connection.note_progress(now)
            if reason := reason_to_close(connection, now, self.config):
                connection.close_now(reason)
        self.quotas.recheck()
        self.memory_pool.wake()

    async def _run_housekeeping(self) -> None:
        due = trio.current_time() + SAMPLE_SECONDS
        barrier = Barrier("housekeeping of the socket server", "it goes on")
        while True:
            await trio.sleep_until(due)
            due += SAMPLE_SECONDS
            if due <= trio.current_time():
                # Beats that a busy loop missed are skipped rather than made up for: they would be samples of nothing.
                due = trio.current_time() + SAMPLE_SECONDS
            with barrier:
                self.sample(perf_counter_ns())
                self.sweep()
                await self.quotas.refresh_overrides()

    # ---- Processors and their connections

    def _make_acceptor(self, listener: Listener, sock: socket.socket) -> Acceptor:
        return Acceptor(
            listener=listener,
            sock=sock,
            config=self.config,
            quotas=self.quotas,
            processors=lambda: self._active,
            make_connection=self._make_connection,
            next_connection_id=lambda: next(self._connection_ids),
            throttled_log=LogThrottle(log, self.clock),
            accept=self._accept,
            before_accept=self._before_accept,
        )

    def _make_connection(self, sock: socket.socket, info: ConnectionInfo) -> Connection:
        tls = self._tls.get(info.listener_name)
        channel = PlaintextChannel(sock) if tls is None else TlsChannel(sock, tls)
        authenticator = self._new_authenticator(info)
        largest = self.config.socket_request_max_bytes if authenticator is None else authenticator.max_frame_bytes
        connection = new_connection(channel, info, largest, self.clock.monotonic())
        connection.authenticator = authenticator
        return connection

    def connections(self) -> Iterator[Connection]:
        """Every connection; they may come and go meanwhile."""
        for processor in (*self._active, *self._retiring):
            yield from list(processor.connections.values())

    def _add_processor(self) -> Processor:
        """A new Processor with the smallest number that is free, so that charts do not grow a line per change."""
        taken = {processor.processor_id for processor in (*self._active, *self._retiring)}
        number = next(number for number in itertools.count() if number not in taken)
        processor = Processor(number, self._context)
        self._active.append(processor)
        return processor

    def _start_processor(self, nursery: trio.Nursery, processor: Processor) -> None:
        start_background(nursery, f"processor {processor.processor_id}", partial(self._run_processor, processor))

    async def _run_processor(self, processor: Processor) -> None:
        """Run ``processor`` until it has retired. One that fails takes its connections with it, and a new one its
        place."""
        barrier, backoff = Barrier(f"processor {processor.processor_id}", "its connections are closed"), Backoff()
        while True:
            with barrier:
                await processor.run()
            self._retiring.pop(processor, None)
            self._retired.add(processor)
            if processor not in self._active:
                return
            failed, processor = processor, Processor(processor.processor_id, self._context)
            # At once, since nobody may be given to the one that has ended.
            self._active[self._active.index(failed)] = processor
            await trio.sleep(backoff.next_pause())

    def _rebalance_connections(self, leaving: Sequence[Processor]) -> None:
        """Command connections to move, so that each active Processor gets an even share and those ``leaving`` none."""
        processors = [*self._active, *leaving]
        loads = [len(processor.connections) for processor in processors]
        for transfer in balanced_transfers(loads, len(self._active)):
            # Idle connections first: they move at once, the others only after their response. ConnectionState is in
            # that order.
            candidates = [conn for conn in processors[transfer.source].connections.values() if conn.command is None]
            candidates.sort(key=lambda connection: connection.state.value)
            for connection in candidates[: transfer.count]:
                connection.give_command(Reassign(processors[transfer.target].processor_id))

    def _assign(self, connection: Connection, processor_id: int | None) -> None:
        """Let the Processor ``processor_id`` serve ``connection`` while it is active, else the one with the fewest."""
        for processor in self._active:
            if processor.processor_id == processor_id:
                break
        else:
            processor = min(self._active, key=lambda each: len(each.connections))
        processor.accept(connection)

    def _connection_closed(self, connection: Connection, reason: CloseConnection) -> None:
        self._closed[reason.cause.value] += 1
        if is_failed_handshake(connection, reason.cause):
            self.failed_handshakes.add(connection, reason, self.clock.now_ms())
        self.departed_clients.add(connection, reason, now=self.clock.monotonic(), now_ms=self.clock.now_ms())
        self.quotas.release(connection.info.peer_host, connection.info.listener_name)


@attrs.define
class RetiredProcessors:
    """The counts of Processors that have ended, so that no total ever decreases."""

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, processor: Processor) -> None:
        self.requests += processor.requests
        self.bytes_in += processor.bytes_in
        self.bytes_out += processor.sender.bytes_out


def balanced_transfers(loads: Sequence[int], staying: int) -> list[Transfer]:
    """The transfers after which the first ``staying`` of ``loads`` differ by at most one and the others are 0."""
    share, extra = divmod(sum(loads), staying)
    # The remainder stays with the most loaded, so that fewer connections move.
    by_load = sorted(range(staying), key=lambda index: -loads[index])
    goals = [0] * len(loads)
    for rank, index in enumerate(by_load):
        goals[index] = share + (rank < extra)
    surplus = [[index, loads[index] - goals[index]] for index in range(len(loads)) if loads[index] > goals[index]]
    transfers = []
    for target in range(staying):
        missing = goals[target] - loads[target]
        while missing > 0:
            source = surplus[-1]
            count = min(missing, source[1])
            transfers.append(Transfer(source[0], target, count))
            missing -= count
            source[1] -= count
            if not source[1]:
                surplus.pop()
    return transfers
