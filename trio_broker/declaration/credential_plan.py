"""How the passwords of a cluster differ from those that are declared. Blocks: each is computed as in a login."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator

import attrs

from kafka_wire.sasl.scram import ScramCredential, ScramMechanism
from trio_broker.declaration.declaration import DeclaredCredential

FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]


@attrs.frozen
class CredentialPlan:
    """What is to be done about a user's password; ``is_new`` is of a user without one, ``is_done`` where it is set."""

    declared: DeclaredCredential
    is_new: bool
    is_done: bool

    def lines(self) -> Iterator[str]:
        user = f"user {self.declared.name}"
        if self.is_new:
            yield f"+ {user}: {self.declared.mechanism.value}"
        else:
            yield f"= {user}" if self.is_done else f"~ {user}: another password for {self.declared.mechanism.value}"


def plan_credentials(declared: Iterable[DeclaredCredential], find: FindCredential) -> tuple[CredentialPlan, ...]:
    """Return what is to be done about each password, in order; ``find`` finds what is kept of one. Blocks."""
    return tuple(
        CredentialPlan(each, is_new=kept is None, is_done=kept is not None and is_kept(each, kept))
        for each in declared
        for kept in [find(each.name, each.mechanism)]
    )


def is_kept(declared: DeclaredCredential, kept: ScramCredential) -> bool:
    """Whether what is kept of a password is of the one that is declared, with whatever salt and iterations."""
    mechanism = declared.mechanism
    salted = mechanism.salted_password(declared.password, kept.salt, kept.iterations)
    return hmac.compare_digest(mechanism.credential(salted, kept.salt, kept.iterations).stored_key, kept.stored_key)
