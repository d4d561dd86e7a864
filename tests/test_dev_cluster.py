"""Several brokers in one process, and how they end."""

from __future__ import annotations

import signal
from typing import Any

import attrs
import trio

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.dev_cluster import _stop_at_signal


@attrs.define(eq=False)
class StoppableBroker:
    """What a cluster needs of a broker to stop it."""

    config: BrokerConfig
    failure: str = ""
    stopped: trio.Event = attrs.field(factory=trio.Event)

    def stop(self) -> None:
        self.stopped.set()


async def signals():
    yield signal.SIGTERM
    await trio.sleep_forever()


async def test_a_broker_that_was_not_closed_properly_is_named_when_all_have_stopped(caplog):
    brokers: list[Any] = [StoppableBroker(BrokerConfig({"node.id": str(each)})) for each in (1, 2)]
    brokers[1].failure = "every data directory failed: no space"
    with trio.CancelScope() as scope:
        await _stop_at_signal(signals(), scope, brokers)
    assert scope.cancel_called
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [
        "broker 2: every data directory failed: no space"
    ]
