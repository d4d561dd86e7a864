"""The alerts of a running broker: two tasks, of which one looks and one tells.

``watch`` asks the rules of the admin page every ``LOOK_SECONDS``. ``deliver`` tells the receiver what it does not know
yet, one message at a time. A receiver that hangs or fails costs that task its time and nothing else: what it is sent
next is made of the state as it is then. A failing one is logged once, and once when it takes messages again.

Source: docs/decisions/0081-alerts-are-a-state-not-a-queue.md.
"""

from __future__ import annotations

import logging

import trio

from broker_admin.alert_messages import AlertSender, message
from broker_admin.alerts import AlertBoard, DeliveredAlerts, News
from broker_admin.overview import findings_of
from broker_admin.view import NodeView
from broker_admin.views.node.alerts import Alert, AlertReport, WebhookReport
from trio_broker import __version__
from trio_broker.concurrency.barrier import Backoff
from trio_broker.config.alert_config import AlertConfig, HttpAddress, http_address
from trio_broker.handlers.support.services import BrokerServices

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks, each of which is as an open overview: some milliseconds."""

LISTED_ALERTS = 200
"""In the API and on the page, which thousands of groups would make unreadable."""

USER_AGENT = f"trio-broker/{__version__}"


class LiveAlertsView:
    """The part of the admin app's view that is about alerts; ``watch`` and ``deliver`` run beside it."""

    def __init__(self, services: BrokerServices, admin_url: str) -> None:
        self.services = services
        self.admin_url = admin_url
        self._board = AlertBoard()
        self._alerts: dict[str, Alert] = {}
        self._checked_at_ms: int | None = None
        self._looked = trio.Event()
        self._receiver = Receiver(services)

    @property
    def page_address(self) -> str:
        """Where others reach the admin page."""
        return self.services.config.alerts.admin_advertised_url or self.admin_url

    def report(self) -> AlertReport:
        listed = tuple(self._alerts.values())[:LISTED_ALERTS]
        return AlertReport(
            checked_at_ms=self._checked_at_ms,
            alerts=listed,
            total=len(self._alerts),
            webhook=self._receiver.report(self._alerts),
        )

    async def watch(self, view: NodeView) -> None:
        """Look at ``view`` again and again."""
        while True:
            readings = await view.overview.readings()
            self._board.update(findings_of(view, readings), trio.current_time(), self.services.clock.now_ms())
            self._alerts = self._board.alerts(self.page_address, self.services.node.node_id)
            self._checked_at_ms = self.services.clock.now_ms()
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep(LOOK_SECONDS)

    async def deliver(self) -> None:
        """Tell the receiver after each look what it does not know; a look during a delivery counts with the next."""
        while True:
            await self._looked.wait()
            await self._receiver.tell(self._alerts, self._sender())

    def _sender(self) -> AlertSender:
        node = self.services.node
        return AlertSender(
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            page=self.page_address,
            repeat_interval_ms=self.services.config.alerts.alerts_repeat_interval_ms,
        )


class Receiver:
    """The server that ``alerts.webhook.url`` names, and what it knows.

    Another URL is another receiver, which knows nothing yet.
    """

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self._url = ""
        self._forget()

    def _forget(self) -> None:
        self._delivered = DeliveredAlerts()
        self._backoff = Backoff()
        self._next_try_at = 0.0
        self._last_delivery_at_ms: int | None = None
        self._last_try_at_ms: int | None = None
        self._error: str | None = None
        self._failing_since_ms: int | None = None

    @property
    def _config(self) -> AlertConfig:
        return self.services.config.alerts

    def report(self, alerts: dict[str, Alert]) -> WebhookReport:
        url, config = self._url, self._config
        if not url:
            return WebhookReport(format=config.alerts_webhook_format)
        changes = self._delivered.changes(alerts)
        return WebhookReport(
            host=http_address(url).host_header,
            format=config.alerts_webhook_format,
            last_delivery_at_ms=self._last_delivery_at_ms,
            last_try_at_ms=self._last_try_at_ms,
            error=self._error,
            failing_since_ms=self._failing_since_ms,
            undelivered=len(changes.raised) + len(changes.resolved),
        )

    async def tell(self, alerts: dict[str, Alert], sender: AlertSender) -> None:
        """Tell it what it does not know of ``alerts``, if it is time to."""
        if self._url != self._config.alerts_webhook_url:
            self._url = self._config.alerts_webhook_url
            self._forget()
        now = trio.current_time()
        if not self._url or now < self._next_try_at:
            return
        news = self._delivered.news(alerts, now, sender.repeat_interval_ms / 1000)
        if news:
            await self._send(http_address(self._url), news, sender, len(alerts))

    async def _send(self, address: HttpAddress, news: News, sender: AlertSender, active: int) -> None:
        # Imported here: most brokers tell nobody.
        from trio_broker.network.http_client import HttpError, post

        config, clock = self._config, self.services.clock
        headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        if config.alerts_webhook_authorization:
            headers["Authorization"] = config.alerts_webhook_authorization
        body = message(config.alerts_webhook_format, news, sender, clock.now_ms(), active)
        try:
            runtime = self.services.runtime
            await post(address, headers, body, connect=runtime.network.connect, workers=runtime.workers)
        except HttpError as error:
            self._note_failure(f"{error}", address)
        else:
            self._note_delivery(news, address)
        self._last_try_at_ms = clock.now_ms()

    def _note_failure(self, error: str, address: HttpAddress) -> None:
        if self._error is None:
            self._failing_since_ms = self.services.clock.now_ms()
            log.warning("alerts cannot be delivered to %s: %s; it is tried again", address.host_header, error)
        self._error = error
        self._next_try_at = trio.current_time() + self._backoff.next_pause()

    def _note_delivery(self, news: News, address: HttpAddress) -> None:
        if self._error is not None:
            log.info("alerts are delivered to %s again", address.host_header)
        self._error = self._failing_since_ms = None
        self._last_delivery_at_ms = self.services.clock.now_ms()
        self._delivered.take(news, trio.current_time())
