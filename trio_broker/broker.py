"""The broker: its tasks, and the order in which they start and stop.

    run
    ├─ admin server            behind its guard; loaded at its first connection
    └─ open_services           data directories, metadata, logs, partitions        (bootstrap.py)
       └─ nursery
          ├─ ChangeLog          writes what was changed
          ├─ ConfigTrials       undoes what is not kept
          ├─ ReplicaManager     flusher, retention, checkpoints
          ├─ GroupCoordinator   loading, timers of groups, expiry of offsets
          ├─ TransactionCoordinator   loading, time-outs of transactions, their markers
          ├─ Declarator         creates and changes what is declared
          └─ SocketServer       acceptors, processors, request channel, handlers

Ports are opened first, because a taken one is the commonest reason not to start. Clients' are served last; the admin
server's at once, which tells how far the start is. A stop has this order: one of several brokers moves what it leads,
and is the controller no more; no new connections; delayed fetches are answered with what there is; requests in flight
may finish until ``shutdown.grace.ms`` is over; then the admin server stops, whose readiness has been negative since the
beginning of the stop; and last the logs are closed, so that every acknowledged record is on the disk.

Source: Kafka's BrokerServer.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import resource
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

import attrs
import outcome
import trio

from trio_broker import __version__
from trio_broker.bootstrap import open_services
from trio_broker.cluster.broker_lifecycle_manager import BrokerLifecycleManager, RegistrationRefused
from trio_broker.cluster.declarations import Declarator
from trio_broker.cluster.delegation_token_control import find_token_login
from trio_broker.cluster.metadata_faults import MetadataFaults
from trio_broker.cluster.scram_control import find_credential
from trio_broker.cluster.shared_metadata import SharedMetadata
from trio_broker.common.host_port import parse_host_port
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol
from trio_broker.concurrency.barrier import start_background
from trio_broker.concurrency.cancel_once import cancel_once
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.config.authorizer_config import NO_AUTHORIZER
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.config.listeners import (
    Endpoint,
    advertised_endpoints,
    listener_endpoints,
)
from trio_broker.config.metadata_store_config import LOCAL
from trio_broker.declaration.declaration import Declaration, DeclarationError
from trio_broker.handlers.support.dispatch import Dispatcher
from trio_broker.handlers.support.registry import is_served, served_apis
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.acceptor import Listener
from trio_broker.network.request_channel import Answer, ConnectionInfo, QueuedRequest
from trio_broker.network.request_memory_pool import RequestMemoryPool
from trio_broker.network.socket_server import SocketServer
from trio_broker.partition.log_loader import LoadStopped, LogLoader
from trio_broker.quota.quota_managers import QuotaManagers
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.garbage_collection import FULL_COLLECTION, collect_in_small_steps
from trio_broker.runtime.memory import forget_generated_text, release_free_memory
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.service_manager import ServiceReport, ServiceState, service_manager
from trio_broker.security.broker_security import check_broker_security
from trio_broker.security.exposure import exposure_of
from trio_broker.security.sasl import oauthbearer
from trio_broker.security.sasl.authenticators import SaslAuthenticators
from trio_broker.security.sasl.server_authenticator import SaslServerAuthenticator
from trio_broker.storage import file_names
from trio_broker.storage.errors import DataDirectoryError, is_shortage
from trio_broker.storage.recovery_progress import progress_text

if TYPE_CHECKING:
    from broker_admin.server import AdminAddress
    from broker_admin.starting_broker import StartingBroker
    from trio_broker.security.sasl.broker_jwt_validator import BrokerJwtValidator
    from trio_broker.security.sasl.verification_keys import VerificationKeys
    from trio_broker.security.ssl_factory import SslFactory

log = logging.getLogger(__name__)


ADMIN = "admin"
"""The name by which the admin page has keys of its own, as a listener has. No listener has it: theirs are in capitals.
"""

KEYS_INTERVAL_MS = 3_000
"""Between two looks whether settings or files with keys have changed: two calls of the system for each listener."""

TRIM_INTERVAL_MS = 10_000
"""Between two looks whether a backlog of large requests has passed, or no large message comes any more."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP too, which a terminal sends when it is closed: its default would end the process without a clean stop."""

STOPPED_AT_ONCE = "stopped at once; the next start checks the logs"

PORT_TAKEN = "; another program, perhaps another broker, has the port: choose a different one with {}"


class StartupError(Exception):
    """The broker cannot start. Each of ``reasons`` is one line that says why."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


class UncleanStop(Exception):
    """The broker served, and ended without closing everything properly; its text is one line that says why."""


class Broker:
    """One broker. ``run`` is its life; ``stop`` ends it cleanly from any task of the same loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        runtime: Runtime | None = None,
        declaration: Declaration | None = None,
        shared_metadata: SharedMetadata | None = None,
    ) -> None:
        """Take the settings; nothing is opened yet. What ``declaration`` has is there before clients are served.

        ``shared_metadata`` is that of several brokers of this process, in place of what ``metadata.store`` names.

        Raises:
            ConfigError: the listeners cannot be understood, or one with TLS cannot have its key; or what this broker is
                to show to others is missing.
        """
        self.config = config
        self.declaration = declaration or Declaration()
        self.runtime = runtime or real_runtime()
        self._shared_metadata = shared_metadata
        self.listeners = {each.listener_name: each for each in listener_endpoints(config.socket_server)}
        self.authenticators = SaslAuthenticators(config, self.runtime.clock, self.runtime.random)
        self.authenticators.require_offered(self.listeners)
        self._verification_keys: VerificationKeys | None = None
        if self.authenticators.is_enabled(oauthbearer.NAME, self.listeners):
            validator = load_jwt_validator(config, self.runtime)
            self._verification_keys, self.authenticators.validate_token = validator.keys, validator.validate
        self._is_one_of_several = shared_metadata is not None or config.metadata_store.metadata_store != LOCAL
        if self._is_one_of_several:
            check_broker_security(config)
        self._tls = {
            name: load_keys(name, config)
            for name, endpoint in self.listeners.items()
            if endpoint.security_protocol in TLS_PROTOCOLS
        }
        if config.node.admin_listener and config.node.admin_security_protocol == SecurityProtocol.SSL.name:
            self._tls[ADMIN] = load_keys(ADMIN, config)
        config.validators.append(self.validate_reconfiguration)
        served_apis()  # imports the handlers, so that ``is_served`` knows them
        self.quotas = QuotaManagers(self.runtime.clock, config.quota)
        self.server = SocketServer(
            [Listener(each.listener_name, each.host, each.port) for each in self.listeners.values()],
            handle=not_running,
            is_served=is_served,
            config=config.socket_server,
            clock=self.runtime.clock,
            network=self.runtime.network,
            workers=self.runtime.workers,
            before_accept=self.runtime.disk.open_files.hold_spares,
            new_authenticator=self._new_authenticator,
            client_quotas=self.quotas,
            tls=self._tls,
        )
        self.loader = LogLoader()
        self.admin_url: str | None = None
        self.is_running = False
        """Whether the start is over, so that clients are served, or were before the stop."""
        self.stopped = trio.Event()
        # Why the broker ends, or ended, without closing everything properly; empty as long as it does not.
        self.failure = ""
        self._dispatcher: Dispatcher | None = None
        self._stopping = trio.Event()
        self._drained = trio.Event()
        # What the admin server serves; None without one.
        self._admin: StartingBroker | None = None
        self._admin_ended = trio.Event()

    @property
    def services(self) -> BrokerServices:
        """The parts that handlers reach; there while the broker runs."""
        return self.dispatcher.services

    @property
    def clock(self) -> Clock:
        """The broker's time."""
        return self.runtime.clock

    @property
    def dispatcher(self) -> Dispatcher:
        assert self._dispatcher is not None, "the broker does not run"
        return self._dispatcher

    @property
    def bound_endpoints(self) -> list[Endpoint]:
        """Where the broker listens, with the ports that the system chose where 0 was asked for."""
        return [self._with_port(each) for each in listener_endpoints(self.config.socket_server)]

    @property
    def advertised(self) -> dict[str, Endpoint]:
        """What each listener, by name, tells its clients; where no port was given, the one that was bound."""
        return {each.listener_name: self._with_port(each) for each in advertised_endpoints(self.config.socket_server)}

    def _with_port(self, endpoint: Endpoint) -> Endpoint:
        return attrs.evolve(endpoint, port=endpoint.port or self.server.bound_addresses[endpoint.listener_name][1])

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def wait_stopping(self) -> None:
        """Return once the stop has begun."""
        await self._stopping.wait()

    def stop(self) -> None:
        """Begin to stop; ``run`` returns when everything is closed, or raises while it is loading logs. Idempotent."""
        self._stopping.set()
        self.loader.stop()

    async def run(self, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Open everything, serve until ``stop``, close everything. Started once clients are served.

        Raises:
            StartupError: a port is taken, a data directory cannot be used, or the start was stopped.
        """
        self._open_ports()
        async with trio.open_nursery() as admin_nursery:
            # Passed on as a value: an exception that leaves a nursery is wrapped in a group.
            ended = await outcome.acapture(self._run_with_admin, admin_nursery, task_status)
            admin_nursery.cancel_scope.cancel()
        ended.unwrap()

    async def _run_with_admin(self, admin_nursery: trio.Nursery, task_status: trio.TaskStatus[Broker]) -> None:
        try:
            await self._start_admin(admin_nursery)
            async with open_services(
                self.config,
                self.runtime,
                self.advertised,
                (self,),
                loader=self.loader,
                shared=self._shared_metadata,
                quotas=self.quotas,
            ) as services:
                self._dispatcher = Dispatcher(services, self.server.channel.metrics, self.server.memory_pool)
                self.server.handlers.handle = self._dispatcher.answer
                self.authenticators.salt_key = services.node.cluster_id.encode()
                self.authenticators.find_credential = lambda user, mechanism: find_credential(
                    services.metadata_cache.image, user, mechanism
                )
                self.authenticators.find_token = lambda token_id: find_token_login(
                    services.metadata_cache.image,
                    self.config.sasl.delegation_token_secret_key,
                    token_id,
                    self.clock.now_ms(),
                )
                # What was changed before this start is in effect already, except in the server that was made without.
                self.reconfigure(self.config)
                # Raised behind the block, at whose end everything is closed properly.
                refusal = await self._serve(services, task_status)
            if refusal is not None:
                raise StartupError(*refusal.reasons)
            if not services.replicas.log_manager.closed_cleanly and not self.failure:
                self.failure = "a data directory was not closed properly: the next start checks its logs"
            log.info("stopped")
        except (DataDirectoryError, RegistrationRefused) as error:
            raise StartupError(str(error)) from error
        except LoadStopped as error:
            raise StartupError(f"{error}: the next start begins anew") from error
        except OSError as error:
            if self._dispatcher is not None:
                raise
            where = f"{error.filename}: " if error.filename else ""
            hint = ": make some room for the start" if is_shortage(error) else ""
            raise StartupError(f"cannot start: {where}{error.strerror or error}{hint}") from error
        finally:
            self.server.stop_accepting()
            self.stopped.set()

    def _open_ports(self) -> None:
        try:
            self.server.bind()
        except OSError as error:
            listeners = ", ".join(map(str, listener_endpoints(self.config.socket_server)))
            hint = PORT_TAKEN.format("--port or listeners") if error.errno == errno.EADDRINUSE else ""
            raise StartupError(f"cannot listen on {listeners}: {error.strerror or error}{hint}") from error
        for endpoint in self.bound_endpoints:
            address = ipaddress.ip_address(self.server.bound_addresses[endpoint.listener_name][0])
            if not address.is_loopback and (exposure := exposure_of(endpoint, self.config)):
                log.warning("%s is open to other machines %s", endpoint, exposure)

    def _new_authenticator(self, info: ConnectionInfo) -> SaslServerAuthenticator | None:
        """What the client of a new connection logs in with; None on a listener without a login."""
        if self.listeners[info.listener_name].security_protocol not in SASL_PROTOCOLS:
            return None
        max_request_bytes = self.config.socket_server.socket_request_max_bytes
        return self.authenticators.new_authenticator(info.listener_name, info.peer_host, max_request_bytes)

    async def _serve(self, services: BrokerServices, task_status: trio.TaskStatus[Broker]) -> DeclarationError | None:
        """Run all tasks until ``stop``; return why what is declared is refused, in which case nobody was served."""
        refusal: DeclarationError | None = None
        async with trio.open_nursery() as nursery:
            if self._tls:
                start_scheduled(nursery, ScheduledTask("keys of TLS", lambda: KEYS_INTERVAL_MS, self._follow_keys))
            if self._verification_keys is not None:
                start_background(nursery, "keys of tokens", self._verification_keys.run)
            start_background(nursery, "change log", services.changes.run)
            start_background(nursery, "trials of settings", services.trials.run)
            start_background(nursery, "faults of the metadata", partial(self._stop_at_fault, services.metadata_faults))
            if services.lifecycle is not None:
                dismissed = services.lifecycle.dismissed
                start_background(nursery, "end of a decommission", partial(self._stop_when_dismissed, dismissed))
            await nursery.start(services.replicas.run)
            await nursery.start(services.groups.run)
            await nursery.start(services.transactions.run)
            start_background(nursery, "verification of transactions", services.transaction_verification.run)
            if (refusal := await self._declare(services)) is None:
                if services.lifecycle is not None and self.declaration:
                    services.undeclared = "what is declared is not there yet"
                    start_background(nursery, "declaration", partial(self._declare_among_several, services))
                await nursery.start(self.server.run)
                start_scheduled(
                    nursery,
                    ScheduledTask(
                        "delegation tokens that are over",
                        lambda: self.config.sasl.delegation_token_expiry_check_interval_ms,
                        services.controller.remove_expired_delegation_tokens,
                    ),
                )
                if services.lifecycle is not None:
                    # From now on the others reach it.
                    start_background(nursery, "controller", services.controller.lead)
                    periodic_tasks = services.controller.run_periodic_tasks
                    start_background(nursery, "periodic tasks of the controller", periodic_tasks)
                if self._admin is not None:
                    await self._show_all(self._admin, nursery)
                if services.lifecycle is not None:
                    await self._wait_unfenced(services.lifecycle)
                self.is_running = True
                task_status.started(self)
                await self._stopping.wait()
                if services.lifecycle is not None:
                    # While it serves still: its partitions get other leaders first.
                    await services.lifecycle.shut_down()
                    # It could not hear the others any more, and would fence them one after the other.
                    services.controller.retire()
            await self._stop_serving(services)
            if self._admin is not None:
                self._drained.set()
                await self._admin_ended.wait()
            nursery.cancel_scope.cancel()
        return refusal

    async def _wait_unfenced(self, lifecycle: BrokerLifecycleManager) -> None:
        """Wait until others count on this broker; not for a controller that is not there, nor in a stop."""
        async with trio.open_nursery() as waits:
            waits.cancel_scope.deadline = trio.current_time() + self.config.node.broker_session_timeout_ms / 1000
            waits.start_soon(cancel_once, lifecycle.unfenced, waits.cancel_scope)
            waits.start_soon(cancel_once, self._stopping, waits.cancel_scope)

    async def _stop_at_fault(self, faults: MetadataFaults) -> None:
        """Stop when this broker cannot follow the metadata any more."""
        await faults.is_fatal.wait()
        self.failure = faults.reason
        self.stop()

    async def _stop_when_dismissed(self, dismissed: trio.Event) -> None:
        """Stop when the controller lets this broker go that is decommissioned."""
        await dismissed.wait()
        self.stop()

    async def _declare(self, services: BrokerServices) -> DeclarationError | None:
        """Make what is declared, as a broker alone; return why it is refused."""
        if not self.declaration or services.lifecycle is not None:
            return None
        try:
            await self._declarator.declare(services.controller_client, services.metadata_cache.image)
        except DeclarationError as error:
            return error
        return None

    async def _declare_among_several(self, services: BrokerServices) -> None:
        def note(reason: str) -> None:
            services.undeclared = reason

        cache = services.metadata_cache
        await self._declarator.declare_until_done(services.controller_client, lambda: cache.image, note)

    @property
    def _declarator(self) -> Declarator:
        return Declarator(self.declaration, self.services.config, self.runtime)

    async def _show_all(self, admin: StartingBroker, nursery: trio.Nursery) -> None:
        """Let the admin app have a view of the running broker, and ``nursery`` what writes its history."""
        # Clients are served already, and do not wait for this.
        await self.runtime.workers.run(load_live_view)
        from broker_admin.forwarded_app import ForwardedApp
        from trio_broker.broker_view.live import LiveBrokerView

        view = LiveBrokerView(self.services, self.server, self._stopping.is_set, self.admin_url or "")
        if self.services.broker_clients is not None:
            self.services.answer_admin = ForwardedApp(view).answer
        start_background(nursery, "history writer", view.node.readings.history_writer.run)
        start_background(nursery, "alerts", partial(view.node.alerts.watch, view.node))
        start_background(nursery, "alert webhook", view.node.alerts.deliver)
        admin.view = view

    async def _start_admin(self, nursery: trio.Nursery) -> None:
        """Start the admin server in ``nursery``, if there is to be one.

        Raises:
            StartupError: its address or its tokens cannot be used.
        """
        if not (listener := self.config.node.admin_listener):
            return
        # Imported here, because a broker without an admin page should not pay for one.
        from broker_admin.server import AdminListenerError, serve_admin
        from broker_admin.starting_broker import StartingBroker
        from trio_broker.broker_view.node.start import LiveStartView

        admin = StartingBroker(LiveStartView(self.loader, self.config))
        host, port = parse_host_port(listener)
        allowed_hosts = self.config.node.admin_allowed_hosts
        token_file = self.config.node.admin_token_file
        serve = partial(
            serve_admin, admin, host, port, allowed_hosts=allowed_hosts, tls=self._admin_context,
            token_file=PurePath(token_file) if token_file else None, stopping=self._drained,
            asks_authorizer=self.config.authorizer.authorizer_class_name != NO_AUTHORIZER,
            before_accept=self.runtime.disk.open_files.hold_spares,
        )  # fmt: skip

        async def serve_and_tell(*, task_status: trio.TaskStatus[AdminAddress]) -> None:
            await serve(task_status=task_status)
            self._admin_ended.set()

        try:
            address: AdminAddress = await nursery.start(serve_and_tell)
        except AdminListenerError as error:
            cause = error.__cause__
            taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            hint = PORT_TAKEN.format("--admin-port or admin.listener") if taken else ""
            raise StartupError(f"{error}{hint}") from error
        self._admin = admin
        self.admin_url = address.url
        self.server.name_admin_page(address.url)

    def _admin_context(self) -> ssl.SSLContext | None:
        """What a new connection of the admin page shakes hands by; None where it speaks no TLS."""
        factory = self._tls.get(ADMIN)
        return None if factory is None else factory.context

    async def _stop_serving(self, services: BrokerServices) -> None:
        """Finish what is in flight, within the grace."""
        grace_seconds = self.config.node.shutdown_grace_ms / 1000
        log.info("stopping; requests in flight have %.1f s", grace_seconds)
        self.server.stop_accepting()
        services.replicas.stop_waiting()
        services.groups.runtime.close()
        services.transactions.runtime.close()
        await self.server.drain(trio.current_time() + grace_seconds)

    def validate_reconfiguration(self, config: BrokerConfig, changed: Collection[str]) -> None:
        """Refuse settings by which a listener could have no key, nobody could log in there, or this broker could not
        reach others. Blocks.

        Raises:
            ConfigError: it names the setting.
        """
        for name, factory in self._tls.items():
            if (wanted := config.ssl_of(name)) != self.config.ssl_of(name):
                factory.validate(wanted)
        if any("sasl." in name for name in changed):
            SaslAuthenticators(config, self.runtime.clock, self.runtime.random).require_offered(self.listeners)
        if self._is_one_of_several and any("ssl." in name or "sasl." in name for name in changed):
            check_broker_security(config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Let the socket server follow the settings that may change while it runs."""
        if config.socket_server != self.server.config:
            self.server.reconfigure(config.socket_server)

    async def _follow_keys(self) -> None:
        """Let each listener have the keys that settings and files say now; connections go on with those before."""
        for factory in self._tls.values():
            try:
                renew = partial(factory.reconfigure, self.config.ssl_of(factory.listener))
                if await self.runtime.workers.run(renew):
                    log.info("listener %s: new keys and certificates are in use", factory.listener)
            except ConfigError as error:
                log.error("%s; the keys and certificates before stay in use", error)


def load_jwt_validator(config: BrokerConfig, runtime: Runtime) -> BrokerJwtValidator:
    """Return what validates the tokens of OAUTHBEARER, whose library is installed only where it is asked for.

    Raises:
        ConfigError: the library is not there, or as ``new_jwt_validator``.
    """
    try:
        from trio_broker.network.jwks_endpoint import new_jwt_validator
    except ModuleNotFoundError as error:
        if error.name != "joserfc":
            raise
        raise ConfigError("OAUTHBEARER needs the extra: pip install 'trio-broker[oauth]'") from None
    return new_jwt_validator(config.sasl, runtime)


def load_live_view() -> None:
    """Import what a running broker is shown by. Takes a fifth of a second."""
    import trio_broker.broker_view.live  # noqa: F401


def load_keys(listener: str, config: BrokerConfig) -> SslFactory:
    """Return the keys and certificates of ``listener``.

    Raises:
        ConfigError: they are not what they should be.
    """
    # Imported here: see the head of the module.
    from trio_broker.security.ssl_factory import SslFactory

    return SslFactory(listener, config.ssl_of(listener))


def not_running(request: QueuedRequest) -> Answer:
    """The handler of a server that does not run yet; it has no connections."""
    raise AssertionError(f"the broker does not run, and {request.connection} asks")


def run_until_signalled(
    config: BrokerConfig, *, announce: Callable[[str], object], declaration: Declaration | None = None
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP, or until every data directory has failed.

    Once it serves, ``announce`` gets its addresses, line by line. A second signal does not wait for the grace.

    Raises:
        StartupError, ConfigError: it cannot start.
        UncleanStop: it has served, and was not closed properly.
    """
    raise_file_limit()
    broker = Broker(config, declaration=declaration)
    try:
        trio.run(partial(serve_until_signalled, broker, announce))
    except BaseExceptionGroup as group:
        raise single_startup_error(group) or group from None
    if broker.failure:
        raise UncleanStop(broker.failure)


async def serve_until_signalled(broker: Broker, announce: Callable[[str], object]) -> None:
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            stop = partial(stop_on_signal, signals, broker, nursery.cancel_scope)
            start_background(nursery, "stop on a signal", stop)
            # Before the start, of which searches for garbage would be a third with 5,000 partitions.
            collect_in_small_steps()
            forget_generated_text()
            manager = service_manager(os.environ, os.getpid())
            report = None if manager is None else ServiceReport(manager, partial(service_state, broker))
            if report is not None:
                start_background(nursery, "service manager", partial(report.run, broker.wait_stopping))
            await nursery.start(broker.run)
            start_background(nursery, "stop without storage", partial(stop_without_storage, broker))
            start_scheduled(nursery, FULL_COLLECTION)
            start_scheduled(nursery, memory_trimming(broker.server.memory_pool))
            for line in announcement(broker):
                announce(line)
            if report is not None:
                report.send()
            await broker.stopped.wait()
            nursery.cancel_scope.cancel()


def service_state(broker: Broker) -> ServiceState:
    """What the service manager learns of ``broker``: ready when ``/readyz`` would say so."""
    if broker.is_stopping:
        return ServiceState(is_ready=False, is_stopping=True, status=broker.failure or "stopping")
    if not broker.is_running:
        return ServiceState(is_ready=False, is_stopping=False, status=progress_text(broker.loader.progress()))
    reason = broker.services.log_dir_failures.reason_not_served() or broker.services.undeclared
    listening = ", ".join(map(str, broker.bound_endpoints))
    return ServiceState(is_ready=not reason, is_stopping=False, status=reason or f"serving clients on {listening}")


def memory_trimming(memory_pool: RequestMemoryPool) -> ScheduledTask:
    """Gives the kernel what a backlog of large requests, or the last large messages, have left free.

    For a process that is a broker and nothing else, since its heaps are the process's.
    """

    async def trim_memory() -> None:
        if memory_pool.should_trim():
            release_free_memory()

    return ScheduledTask("return of free memory", lambda: TRIM_INTERVAL_MS, trim_memory)


async def stop_on_signal(signals: AsyncIterator[int], broker: Broker, scope: trio.CancelScope) -> None:
    """Stop cleanly on the first signal, and at once on the second.

    A broker that ends by itself meanwhile goes on so after the first, and its reason is kept after the second.
    """
    first = signal.Signals(await anext(signals)).name
    if broker.is_stopping:
        log.warning("already stopping: %s; %s again ends it at once", broker.failure, first)
    else:
        log.info("%s: stopping", first)
        broker.stop()
    second = signal.Signals(await anext(signals)).name
    broker.failure = f"{broker.failure and f'{broker.failure}; '}{second} again: {STOPPED_AT_ONCE}"
    log.warning("%s", broker.failure)
    scope.cancel()


async def stop_without_storage(broker: Broker) -> None:
    """Stop once every data directory has failed, as Kafka does: nothing can be read or written any more.

    By way of ``stop``, so that requests in flight are answered with the error, and readiness tells it meanwhile.
    """
    failures = broker.services.log_dir_failures
    await failures.all_failed.wait()
    broker.failure = failures.reason_not_served()
    log.error("stopping: %s", broker.failure)
    broker.stop()


def announcement(broker: Broker) -> list[str]:
    """Where the broker can be reached, where its data lies, and what an acknowledgement is worth."""
    config, node = broker.config, broker.services.node
    durability = config.node.log_durability
    first = broker.bound_endpoints[0]
    host, _, port = str(first).partition("://")[2].rpartition(":")
    login = "" if first.security_protocol is SecurityProtocol.PLAINTEXT else " --command-config client.properties"
    return [
        f"trio-broker {__version__}, node {node.node_id}, cluster {node.cluster_id}",
        *(f"data       {file_names.absolute(PurePath(directory))}" for directory in config.node.log_dirs),
        f"durability {durability}: acks=all {DURABILITY_MEANS[durability]}",
        *(f"listening  {endpoint}" for endpoint in broker.bound_endpoints),
        f"admin      {broker.admin_url or 'off'}",
        f"try        echo hello | trio-broker produce greetings -b {host or 'localhost'}:{port}{login}",
        "stop       Ctrl-C, or SIGTERM",
    ]


DURABILITY_MEANS = {
    "fsync": "is acknowledged once it is on the disk",
    "page-cache": "is acknowledged once the operating system has it",
}


def single_startup_error(group: BaseExceptionGroup[BaseException]) -> StartupError | None:
    """The StartupError that is alone in ``group``, however deep."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, StartupError) else None


def raise_file_limit() -> None:
    """Let the process open as many files as it is allowed to ask for: connections and segments are files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS has an infinite hard limit and refuses it.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
