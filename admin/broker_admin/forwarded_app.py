"""The admin app for requests that other brokers pass on (``forwarding.py``), loaded at the first of them.

As that of people is (``server.py``): most brokers of a cluster are asked by nobody for long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

if TYPE_CHECKING:
    from broker_admin.view import BrokerView

Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""``forwarding.answer_forwarded`` with its app."""


@attrs.define
class ForwardedApp:
    """The app over ``broker``."""

    broker: BrokerView
    _answer: Answer | None = None

    async def answer(self, question: bytes) -> bytes:
        """What another broker gets for ``question``. Raises nothing."""
        if self._answer is None:
            # Where several are the first, each makes an app, of which one stays: they keep nothing.
            self._answer = await trio.to_thread.run_sync(load_answer, self.broker)
        return await self._answer(question)


def load_answer(broker: BrokerView) -> Answer:
    """Return what answers by the app over ``broker``; imports the app, which takes some tenths of a second."""
    from broker_admin.app import create_forwarded_app
    from broker_admin.forwarding import answer_forwarded

    return partial(answer_forwarded, create_forwarded_app(broker))
