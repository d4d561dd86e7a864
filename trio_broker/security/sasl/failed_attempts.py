"""How often each address has failed to log in: who guesses passwords is slowed down, and others are not.

An address may fail ``BURST`` times at once and ``PER_SECOND`` times a second from then on. Above that its attempts are
refused unseen, right ones too: otherwise a guess would be free. Addresses that one party has are one here
(``client_network``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from trio_broker.common.client_network import client_network
from trio_broker.runtime.clock import Clock

BURST: Final = 100
"""A host of clients with an old password, all of which start again at once, does not lock out its other clients."""

PER_SECOND: Final = 10.0
"""A password of eight random letters and digits takes half a million years so."""

MAX_ADDRESSES: Final = 10_000
"""That are remembered, the latest to fail."""


@attrs.define
class FailedAttempts:
    """``is_exhausted`` is asked before each attempt, ``note`` called after one that has failed."""

    clock: Clock
    _spent: OrderedDict[str, tuple[float, float]] = attrs.field(factory=OrderedDict)
    """Of each address, how many failures it has left to pay for, and when that was."""

    def is_exhausted(self, host: str) -> bool:
        # Whether a whole one more would be too many: what is left to pay for is less than all at any later time.
        return self._left(client_network(host)) > BURST - 1

    def note(self, host: str) -> None:
        # What is refused unseen guesses nothing, and must not add to the time.
        if self.is_exhausted(host):
            return
        network = client_network(host)
        self._spent[network] = self._left(network) + 1, self.clock.monotonic()
        self._spent.move_to_end(network)
        if len(self._spent) > MAX_ADDRESSES:
            self._spent.popitem(last=False)

    def _left(self, network: str) -> float:
        count, at = self._spent.get(network, (0.0, 0.0))
        return max(0.0, count - PER_SECOND * (self.clock.monotonic() - at))
