"""A real broker inside the running process, in a thread with an event loop of its own.

For tests with or without an event loop of their own. Every call blocks until the broker has done its part, which takes
milliseconds. The system picks the ports, so any number of brokers can run at the same time. The data is in a temporary
directory, which is removed with the broker, or in a given one. The broker has its own clock, which runs like the
machine's and can be advanced; retention and all timers follow it.

An error that prevents the start is raised by ``start``. A broker without errors logs nothing above INFO.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker.broker import Broker
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.concurrency.scheduled_task import run_once
from trio_broker.config.broker_config import load_broker_config
from trio_broker.config.errors import ConfigError
from trio_broker.runtime.real import real_runtime
from trio_broker.testing.advancing_clock import AdvancingClock
from trio_broker.testing.client_settings import SCRAM, ClientSettings, broker_settings, user_of_scram
from trio_broker.testing.loop_thread import BrokerDoesNotRun, LoopThread

T = TypeVar("T")
Setting = str | int | float | bool

TEST_SETTINGS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "admin.listener": "",
    "log.durability": "page-cache",
    # Kafka's default lets the first member of a group wait 3 s for others.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # The first group creates this topic. The default of fifty partitions would take a tenth of a second.
    "offsets.topic.num.partitions": "4",
    # Background tasks are due from the start on, so that an advance by their interval is enough to run them.
    "log.initial.task.delay.ms": "0",
    # Otherwise an advance of the clock by ten minutes would close the connections of all clients as idle.
    "connections.max.idle.ms": "-1",
    "shutdown.grace.ms": "1000",
}
"""The settings of a broker in a test that differ from the built-in defaults."""

ADMIN_ON_ANY_PORT = "127.0.0.1:0"


class BrokerThread:
    """A broker in a thread. Use it as a context manager, or call ``start`` and ``stop``.

    It can be started again after a stop. It then has the same data and the same port, so that clients reconnect.
    """

    def __init__(
        self,
        data_directory: Path | None = None,
        *,
        admin: bool = False,
        security: str | None = None,
        **settings: Setting,
    ) -> None:
        """Take the settings, which are Kafka's keys with ``_`` for the dots: ``num_partitions=3``. Nothing runs yet.

        Without ``data_directory`` the data is in a temporary directory below ``TMPDIR``, which is removed at the end of
        the ``with`` block or with this object. On a tmpfs no start waits for a disk. ``admin`` turns on the admin page
        and HTTP API, which makes the start slower. ``security`` is how clients reach the broker, by the settings in
        ``client_settings``: ``tls``, ``mtls`` with certificates of clients, ``scram`` with a login, ``scram+tls``.

        Raises:
            ValueError: there is no such ``security``.
        """
        self.clock = AdvancingClock()
        self.data_directory = data_directory or self._temporary_directory()
        self._settings = setting_texts(settings)
        self._security = security
        if security is not None:
            self._certificates = Path(tempfile.mkdtemp(prefix="trio-broker-certificates-"))
            weakref.finalize(self, shutil.rmtree, self._certificates, ignore_errors=True)
            self._settings = {**broker_settings(security, self._certificates), **self._settings}
        if admin:
            self._settings.setdefault("admin.listener", ADMIN_ON_ANY_PORT)
        self._bootstrap_servers = self._listeners = ""
        self._broker: Broker | None = None
        self._run: LoopThread | None = None

    def _temporary_directory(self) -> Path:
        path = tempfile.mkdtemp(prefix="trio-broker-")
        self._remove_data = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return Path(path)

    _remove_data: Callable[[], object] | None = None
    _certificates: Path | None = None

    # ---- what clients need

    @property
    def bootstrap_servers(self) -> str:
        """The ``host:port`` of the first listener, for the clients' setting of that name."""
        assert self._bootstrap_servers, "the broker was not started"
        return self._bootstrap_servers

    @property
    def client_settings(self) -> ClientSettings:
        """The settings of clients of each kind."""
        return ClientSettings(self._security, self.bootstrap_servers, self._certificates or Path())

    @property
    def admin_url(self) -> str | None:
        """The address of the admin page, or None if it is turned off."""
        return self.broker.admin_url

    @property
    def broker(self) -> Broker:
        """The broker itself. It is not thread-safe: change it inside ``call`` only, since its loop runs in a thread."""
        self._require_running()
        assert self._broker is not None
        return self._broker

    @property
    def is_running(self) -> bool:
        return self._run is not None and not self._run.ended.done()

    def _require_running(self) -> LoopThread:
        if self._run is None:
            raise BrokerDoesNotRun("the broker was not started, or was stopped")
        return self._run

    # ---- starting and stopping

    def start(self) -> BrokerThread:
        """Start the broker, and return when clients are served.

        Raises:
            ConfigError: a setting is unknown or not valid.
            StartupError: a port is taken, or the data directory cannot be used.
        """
        assert self._run is None, "the broker runs"
        config = load_broker_config(None, self._all_settings(), {})
        # Warnings are about unknown keys, most likely misspelt ones: without its setting a test might pass by mistake.
        if config.warnings:
            raise ConfigError("; ".join(config.warnings))
        broker = Broker(config, runtime=real_runtime(self.clock))
        run = LoopThread(broker.run, self.clock)
        run.begin()
        self._run, self._broker = run, broker
        endpoint = broker.bound_endpoints[0]
        self._bootstrap_servers = f"{endpoint.host}:{endpoint.port}"
        # With the ports that the system picked, so that clients reconnect after a restart.
        self._listeners = ",".join(map(str, broker.bound_endpoints))
        if self._security in SCRAM:
            self.call(broker.services.controller.alter_scram_credentials, [user_of_scram()])
        return self

    def _all_settings(self) -> dict[str, str]:
        settings = {**TEST_SETTINGS, "log.dirs": str(self.data_directory), **self._settings}
        return settings | {"listeners": self._listeners} if self._listeners else settings

    def stop(self) -> None:
        """Stop cleanly, as an operator would. Does nothing if the broker does not run.

        Raises:
            Exception: the error that ended the broker before.
        """
        self._end(clean=True)

    def kill(self) -> None:
        """Stop without flushing or closing files, so that the next start recovers the logs as after a crash."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        # Removed before ``end``, so that the broker can be started again even if ``end`` raises.
        run, self._run = self._run, None
        if run is not None and self._broker is not None:
            run.end(self._broker.stop if clean else run.cancel)

    def restart(self) -> None:
        """Stop cleanly and start again, with the same data and at the same port."""
        self.stop()
        self.start()

    def __enter__(self) -> BrokerThread:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A clean stop mostly flushes and closes logs, which is not needed for data that is removed next.
        try:
            self._end(clean=self._remove_data is None)
        finally:
            if self._remove_data is not None:
                self._remove_data()

    # ---- what tests need

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Await ``function(*arguments)`` in the broker's loop. Any thread but the broker's may call this."""
        return self._require_running().call(lambda: function(*arguments))

    def advance_clock(self, seconds: float) -> None:
        """Advance the broker's clock, run the background tasks that are due then, and return when they have finished.

        These are retention, removal of deleted files, expiry of producers, and checkpoints. Sleeping tasks and
        deadlines in the broker follow the clock too. Clients have their own clocks, which this does not move.
        """

        async def advance() -> None:
            self.clock.advance(seconds)
            # The same tasks would run in the background too, but the caller could not tell when they have finished.
            for task in self.broker.services.replicas.log_maintenance.tasks():
                await run_once(task)

        self.call(advance)

    def create_topic(self, name: str, partitions: int = 1, **configs: Setting) -> str:
        """Create a topic, with settings in the form ``cleanup_policy="compact"``, and return its id as text.

        Raises:
            KafkaError: the topic exists, or its name or a setting is not valid.
        """
        wanted = NewTopic(name=name, num_partitions=partitions, configs=setting_texts(configs))
        return self.call(create_topic, self.broker, wanted)


def broker_in_thread(
    data_directory: Path | None = None, *, admin: bool = False, security: str | None = None, **settings: Setting
) -> BrokerThread:
    """Return a started ``BrokerThread`` for a ``with`` statement, which stops it and removes its temporary data.

    Raises:
        ConfigError, StartupError, ValueError: as ``BrokerThread``.
    """
    return BrokerThread(data_directory, admin=admin, security=security, **settings).start()


async def create_topic(broker: Broker, wanted: NewTopic) -> str:
    """Have a running broker create a topic, and return its id as text.

    Raises:
        KafkaError: the topic exists, or its name or a setting is not valid.
    """
    [outcome] = await broker.services.controller_client.create_topics([wanted])
    if isinstance(outcome, KafkaError):
        raise outcome
    return uuid_text(outcome.topic_id)


def setting_texts(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return settings as Kafka writes them: dots in their names, booleans in lower case. A name with a dot is Kafka's
    already, which may have the name of a listener in it."""
    return {
        name if "." in name else name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
