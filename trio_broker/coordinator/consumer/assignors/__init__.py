"""The assignors of consumer groups, by the names that clients ask for.

An assignor is a function from members and topics to a target assignment. Topics are ids, and it knows no epochs.

Source: Kafka's group-coordinator/assignor; KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_broker.coordinator.consumer.assignors import range as range_assignor
from trio_broker.coordinator.consumer.assignors import uniform
from trio_broker.coordinator.consumer.assignors.group_spec import Assignor, GroupSpec, MemberSubscriptionSpec

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform.assign, "range": range_assignor.assign}

__all__ = ["ASSIGNORS", "GroupSpec", "Assignor", "MemberSubscriptionSpec"]
