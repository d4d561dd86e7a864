"""From this broker to the controller, wherever that is.

While there is no controller, or it has moved, a call is tried again, for as long as ``call_seconds``; so is one whose
answer was lost, although it may have been carried out: what is sent here may come twice.

Source: Kafka's NodeToControllerChannelManager and ControllerNodeProvider.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.schema import Request
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.network.errors import RequestFailed
from trio_broker.network.network_clients import NetworkClients

CALL_SECONDS: Final = 60.0
"""How long a call is tried, as in Kafka: longer than an election of a controller takes, and than most clients wait."""

ATTEMPT_SECONDS: Final = 30.0
"""How long the controller may take to answer, Kafka's default of ``controller.socket.timeout.ms``."""

RETRY_SECONDS: Final = 0.1
"""Between two attempts, as clients' ``retry.backoff.ms``."""

ResponseT = TypeVar("ResponseT")
T = TypeVar("T")


class NotController(KafkaError):
    """This broker is not the controller, or not any more; what was asked has changed nothing."""

    code = ErrorCode.NOT_CONTROLLER


class ControllerLocator(Protocol):
    """Knows the controller as far as this broker has read the metadata, which may be out of date."""

    def controller(self) -> EndpointImage | None:
        """Return where other brokers reach the controller; None: it is this broker.

        Raises:
            NotController: there is none now, or it is not known where.
        """
        ...


class SendToController(Protocol):
    """Sends one request to the broker that is the controller now."""

    async def __call__(self, request: Request[ResponseT]) -> ResponseT:
        """Return the response.

        Raises:
            RequestFailed: there is none, see ``NetworkClient.send``.
        """
        ...


@attrs.define(eq=False)
class ControllerChannel:
    """Calls of one ``purpose``, which have a connection of their own, and are tried for ``call_seconds``."""

    locator: ControllerLocator
    clients: NetworkClients
    purpose: str = ""
    call_seconds: float = CALL_SECONDS

    def require_here(self) -> None:
        """Return if this broker is the controller.

        Raises:
            NotController: it is not.
        """
        if self.locator.controller() is not None:
            raise NotController("another broker is the controller")

    async def call(self, here: Callable[[], Awaitable[T]], there: Callable[[SendToController], Awaitable[T]]) -> T:
        """Return what ``here`` does if this broker is the controller, and else ``there``, which is given how to send.

        Either may raise NOT_CONTROLLER, and is then called again, or the other one.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: no controller has answered. Whatever else either raises.
        """
        deadline = trio.current_time() + self.call_seconds
        while True:
            try:
                if (controller := self.locator.controller()) is None:
                    return await here()
                return await there(self._sending_to(controller, deadline))
            except KafkaError as error:
                if error.code != ErrorCode.NOT_CONTROLLER:
                    raise
                reason = str(error)
            except RequestFailed as error:
                reason = str(error)
            if trio.current_time() + RETRY_SECONDS >= deadline:
                text = f"the controller has not answered within {self.call_seconds:g} s: {reason}"
                raise KafkaError(text, code=ErrorCode.REQUEST_TIMED_OUT)
            await trio.sleep(RETRY_SECONDS)

    def _sending_to(self, controller: EndpointImage, deadline: float) -> SendToController:
        client = self.clients.client(controller.host, controller.port, self.purpose)

        async def send(request: Request[ResponseT]) -> ResponseT:
            # The time may be over already: a pause takes longer on a machine that is short of CPU.
            seconds = min(ATTEMPT_SECONDS, max(0.0, deadline - trio.current_time()))
            return await client.send(request, timeout_seconds=seconds)

        return send


@attrs.define(eq=False)
class ControllerChannels:
    """What a broker has to say to the controller, by purpose.

    A broker answers one request of a connection after the other: behind a slow CreateTopics the heartbeats of this
    broker would come too late.
    """

    requests: ControllerChannel
    lifecycle: ControllerChannel
    alterations: ControllerChannel

    @classmethod
    def of(
        cls, locator: ControllerLocator, clients: NetworkClients, *, session_timeout_seconds: float
    ) -> ControllerChannels:
        """The channels of a broker; what is said of its life is of no use after its session."""
        return cls(
            requests=ControllerChannel(locator, clients, "requests"),
            lifecycle=ControllerChannel(locator, clients, "lifecycle", session_timeout_seconds),
            alterations=ControllerChannel(locator, clients, "alterations"),
        )
