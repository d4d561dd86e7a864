"""Requests that brokers send to the controller for themselves.

They are not forwarded: a broker that asks another which is not the controller learns so, and asks again.

Source: Kafka's ControllerApis.
"""

from __future__ import annotations

from trio_broker.cluster.controller_channel import NotController
from trio_broker.handlers.support.context import Context


def require_controller(context: Context) -> None:
    """Refuse what only the controller answers.

    Raises:
        NotController: this broker is not it.
    """
    channel = context.services.controller_channel
    if channel is not None and channel.locator.controller() is not None:
        raise NotController("another broker is the controller")
