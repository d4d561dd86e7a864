"""The other brokers of the cluster, and how one of them is asked for what only it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class PeerUnavailable(Exception):
    """A broker has not answered; the text says why, in a few words."""


class PeersView(Protocol):
    """The other brokers of the cluster, as the admin app asks them. A broker alone has none."""

    def broker_ids(self) -> Sequence[int]:
        """The ids of the other brokers that are registered, in order."""
        ...

    def silent(self) -> Mapping[int, str]:
        """Those that did not answer when they were asked the last time, each with the reason."""
        ...

    async def ask(self, broker_id: int, question: bytes) -> bytes:
        """Pass an HTTP request (``forwarding.py``) on to the admin app of another broker, and return its answer.

        Raises:
            PeerUnavailable: there was no answer within some seconds.
        """
        ...
