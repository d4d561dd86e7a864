"""All that a group promises, checked over one history.

No partition has two owners, no acknowledged commit is lost or goes back by itself, and every record is processed at
least once. Each promise is a module here, with tests that show it a broken one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.checking.commits import check_commits
from tests.checking.delivery import check_delivery
from tests.checking.history import Event, Violation
from tests.checking.ownership import check_ownership
from tests.checking.recorded_members import RecordedMember


def check(history: Sequence[Event], kinds: Sequence[type[RecordedMember]]) -> list[Violation]:
    """Every promise that was broken to the groups of ``kinds``, each of which is named as its kind is."""
    return [
        *check_ownership(history, generations_of=frozenset(kind.name for kind in kinds if kind.has_generations)),
        *check_commits(history),
        *check_delivery(history, frozenset(kind.name for kind in kinds)),
    ]
