"""How the rights and quotas of a cluster's users differ from those that are declared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import attrs

from trio_broker.declaration.declaration import DeclaredUser
from trio_broker.declaration.rights_text import GrantedRight, right_text


@attrs.frozen
class CurrentUser:
    """What a user may do from everywhere, and its own quotas."""

    rights: Collection[GrantedRight]
    quotas: Mapping[str, float]


@attrs.frozen
class UserPlan:
    """What is to be done about a user's rights and quotas."""

    declared: DeclaredUser
    rights: tuple[GrantedRight, ...]
    quotas: Mapping[str, float]
    current: CurrentUser

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.rights or self.quotas)

    def lines(self) -> Iterator[str]:
        """What is to be done, line by line."""
        user = f"user {self.declared.name}"
        for right in self.rights:
            yield f"+ {user}: may {right_text(right)}"
        for key, value in self.quotas.items():
            old = self.current.quotas.get(key)
            yield f"+ {user}: {key} {value:g}" if old is None else f"~ {user}: {key} {old:g} → {value:g}"
        if self.is_done and self.declared.credential is None:
            yield f"= {user}"


def plan_users(declared: Iterable[DeclaredUser], find: Callable[[str], CurrentUser]) -> tuple[UserPlan, ...]:
    """Return what is to be done about each user, in order; ``find`` finds one as it is, by name."""
    return tuple(_planned(each, find(each.name)) for each in declared)


def _planned(user: DeclaredUser, current: CurrentUser) -> UserPlan:
    rights = tuple(each for each in user.rights if each not in current.rights)
    quotas = {key: value for key, value in user.quotas.items() if current.quotas.get(key) != value}
    return UserPlan(user, rights, quotas, current)
