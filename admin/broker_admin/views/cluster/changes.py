"""What was changed in a broker, by which client, and their effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from trio_broker.changes.change import Change


@attrs.frozen
class TrialRefusal:
    """Why a change can be neither kept nor undone."""

    reason: str


class ChangesView(Protocol):
    """The changes of a broker, as the admin app sees them. Secrets are not among their values."""

    def list(self) -> Sequence[Change]:
        """The changes that are kept, oldest first."""
        ...

    def get(self, number: int) -> Change | None:
        """One of them; None if there was none of that number, or it is no longer kept."""
        ...

    async def keep(self, number: int) -> Change | TrialRefusal:
        """Make the values on trial stay; returns once that is durable."""
        ...

    async def undo(self, number: int) -> Change | TrialRefusal:
        """End a trial before its time; returns the change that takes it back."""
        ...
