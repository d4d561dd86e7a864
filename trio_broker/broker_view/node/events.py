"""What happens in a running broker, for the admin app's event streams."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.views.node.events import BrokerEvent


class LiveEventsView:
    """The part of the admin app's view that passes events on."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[BrokerEvent], None]] = []

    def subscribe(self, listener: Callable[[BrokerEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, event: BrokerEvent) -> None:
        """Pass ``event`` to every listener."""
        for listener in tuple(self._listeners):
            listener(event)
