"""The wish of a consumer group to become a classic one: an event leads to it, and ``migration`` does it."""

from __future__ import annotations

import attrs

from trio_broker.coordinator.consumer.member import ConsumerMember


@attrs.frozen(kw_only=True)
class Downgrade:
    """The group has only members of the classic protocol left.

    ``leaving`` go with this. ``joining`` is the static member that came in the place of the last one that spoke the
    consumer protocol; its records are among the effects of the event. With ``rebalance`` the members have to rebalance
    at once, because of ``reason``.
    """

    leaving: frozenset[str] = frozenset()
    joining: ConsumerMember | None = None
    rebalance: bool
    reason: str
