"""How the rights and quotas of users, and the quotas of who has none, differ from those that are declared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import attrs

from trio_broker.declaration.declaration import DeclaredDefaultQuotas, DeclaredUser
from trio_broker.declaration.rights_text import GrantedRight, right_text


@attrs.frozen
class CurrentUser:
    """What a user may do from everywhere or is denied, and its own quotas."""

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
        yield from _quota_lines(user, self.quotas, self.current.quotas)
        if self.is_done and self.declared.credential is None:
            yield f"= {user}"


@attrs.frozen
class DefaultQuotaPlan:
    """What is to be done about the quotas of who has none."""

    declared: DeclaredDefaultQuotas
    quotas: Mapping[str, float]
    current: Mapping[str, float]

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return not self.quotas

    def lines(self) -> Iterator[str]:
        """What is to be done, line by line."""
        kind = f"default quotas of {self.declared.kind}"
        yield from _quota_lines(kind, self.quotas, self.current)
        if self.is_done:
            yield f"= {kind}"


def plan_users(declared: Iterable[DeclaredUser], find: Callable[[str], CurrentUser]) -> tuple[UserPlan, ...]:
    """Return what is to be done about each user, in order; ``find`` finds one as it is, by name."""
    return tuple(_planned(each, find(each.name)) for each in declared)


def _planned(user: DeclaredUser, current: CurrentUser) -> UserPlan:
    rights = tuple(each for each in user.rights if each not in current.rights)
    return UserPlan(user, rights, _changed_quotas(user.quotas, current.quotas), current)


def plan_default_quotas(declared: DeclaredDefaultQuotas, current: Mapping[str, float]) -> DefaultQuotaPlan:
    """Return what is to be done about default quotas, of which ``current`` has those that are set."""
    return DefaultQuotaPlan(declared, _changed_quotas(declared.quotas, current), current)


def _changed_quotas(declared: Mapping[str, float], current: Mapping[str, float]) -> Mapping[str, float]:
    return {key: value for key, value in declared.items() if current.get(key) != value}


def _quota_lines(whose: str, changed: Mapping[str, float], current: Mapping[str, float]) -> Iterator[str]:
    for key, value in changed.items():
        old = current.get(key)
        yield f"+ {whose}: {key} {value:g}" if old is None else f"~ {whose}: {key} {old:g} → {value:g}"
