"""What a process tells the service manager that started it: systemd's notification protocol.

The manager waits for ``READY=1`` before it starts what depends on the broker, shows ``STATUS=`` to its operator, and
restarts a broker whose event loop is held up: ``WATCHDOG=1`` is sent by a task of that loop, at least twice in the time
that the manager allows. A notification that cannot be sent is lost, and never hinders the broker.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio

log = logging.getLogger(__name__)

ADDRESS = "NOTIFY_SOCKET"
WATCHDOG_MICROSECONDS = "WATCHDOG_USEC"
WATCHDOG_PROCESS = "WATCHDOG_PID"

REPORT_SECONDS = 1.0
"""Between two looks at the state, where the watchdog does not ask for shorter ones."""


@attrs.frozen
class ServiceState:
    """What the manager learns: whether clients are served, whether the end has begun, and one line for its operator."""

    is_ready: bool
    is_stopping: bool
    status: str


@attrs.frozen
class ServiceManager:
    """The manager at ``address``, a path or, with an ``@`` before it, a name in the abstract namespace."""

    address: str
    watchdog_seconds: float | None = None

    def notify(self, *assignments: str) -> None:
        """Send variables, as ``NAME=value``, without waiting."""
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(assignments).encode(), address)
            except OSError as error:
                log.debug("the service manager is not notified: %s", error)


def service_manager(environment: Mapping[str, str], process_id: int) -> ServiceManager | None:
    """The manager that started this process, if one wants to be notified.

    A watchdog that is meant for another process, as for the shell that started this one, is none.
    """
    address = environment.get(ADDRESS, "")
    if not address.startswith(("/", "@")):
        return None
    microseconds = environment.get(WATCHDOG_MICROSECONDS, "")
    is_ours = environment.get(WATCHDOG_PROCESS, str(process_id)) == str(process_id)
    has_watchdog = is_ours and microseconds.isdecimal() and int(microseconds) > 0
    return ServiceManager(address, int(microseconds) / 1_000_000 if has_watchdog else None)


class ServiceReport:
    """Keeps ``manager`` informed of ``state``: of each change of it, and that the event loop turns."""

    def __init__(self, manager: ServiceManager, state: Callable[[], ServiceState]) -> None:
        self.manager = manager
        self.state = state
        self._reported = ServiceState(is_ready=False, is_stopping=False, status="")

    @property
    def interval_seconds(self) -> float:
        watchdog_seconds = self.manager.watchdog_seconds
        return REPORT_SECONDS if watchdog_seconds is None else min(REPORT_SECONDS, watchdog_seconds / 2)

    def send(self) -> None:
        """Send what has changed, and the beat of the watchdog."""
        state, before = self.state(), self._reported
        assignments = []
        if state.is_ready and not before.is_ready:
            assignments.append("READY=1")
        if state.is_stopping and not before.is_stopping:
            assignments.append("STOPPING=1")
        if state.status != before.status:
            assignments.append(f"STATUS={state.status}")
        if self.manager.watchdog_seconds is not None:
            assignments.append("WATCHDOG=1")
        # The manager takes READY=1 once; a disk that fails later shows in the status.
        self._reported = attrs.evolve(state, is_ready=state.is_ready or before.is_ready)
        if assignments:
            self.manager.notify(*assignments)

    async def run(self, stopping: Callable[[], Awaitable[object]]) -> None:
        """Report until cancelled, and at once when ``stopping`` returns."""
        while not self._reported.is_stopping:
            self.send()
            with trio.move_on_after(self.interval_seconds):
                await stopping()
        while True:
            await trio.sleep(self.interval_seconds)
            self.send()
