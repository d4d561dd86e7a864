"""A declaration: topics and users that are to exist, with settings and passwords that are to be set, and the quotas of
who has none.

What is not declared stays as it is: other topics and users, and other settings of the same topics.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kafka_wire.sasl.scram import ScramMechanism
    from trio_broker.declaration.rights_text import GrantedRight


class DeclarationError(Exception):
    """A declaration is malformed, or contradicts what exists. Each of ``reasons`` is one line."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


@attrs.frozen(kw_only=True)
class DeclaredTopic:
    """One topic. None for partitions or replication factor is the broker's default for a new topic, and anything for
    one that exists. ``origin`` is the file or the option."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: topic {self.name!r}"


@attrs.frozen(kw_only=True)
class DeclaredCredential:
    """The password of a user for one mechanism of SCRAM; ``iterations`` are those of a password that is set."""

    name: str
    mechanism: ScramMechanism
    password: str = attrs.field(repr=False)
    iterations: int
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: user {self.name!r}"


@attrs.frozen(kw_only=True)
class DeclaredUser:
    """What a user may do and have; ``credential`` is None for one who has no password here, as with a certificate."""

    name: str
    credential: DeclaredCredential | None = None
    rights: tuple[GrantedRight, ...] = ()
    quotas: Mapping[str, float] = attrs.field(factory=dict)
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: user {self.name!r}"


@attrs.frozen(kw_only=True)
class DeclaredDefaultQuotas:
    """The quotas of each user, client id or address that has none of its own; ``kind`` is what a file calls them."""

    kind: str
    entity_type: str
    quotas: Mapping[str, float]
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: default_quotas: {self.kind}"


@attrs.frozen
class Declaration:
    """All that is declared, each topic and user once. ``first_credentials`` are for a cluster that has nothing yet."""

    topics: tuple[DeclaredTopic, ...] = ()
    first_credentials: tuple[DeclaredCredential, ...] = ()
    users: tuple[DeclaredUser, ...] = ()
    default_quotas: tuple[DeclaredDefaultQuotas, ...] = ()

    def __bool__(self) -> bool:
        return any(attrs.astuple(self, recurse=False))

    @property
    def credentials(self) -> tuple[DeclaredCredential, ...]:
        """The passwords that users have, at every start."""
        return tuple(each.credential for each in self.users if each.credential is not None)

    @property
    def origin(self) -> str:
        """The file and the options, as far as they declare anything."""
        declared = itertools.chain.from_iterable(attrs.astuple(self, recurse=False))
        return ", ".join(dict.fromkeys(each.origin for each in declared))


def require_once(declaration: Declaration) -> Declaration:
    """Return ``declaration``, in which each topic and first user stands once.

    Raises:
        DeclarationError: one is declared twice.
    """
    counts = Counter(
        [f"topic {each.name!r}" for each in declaration.topics]
        + [f"user {each.name!r} with {each.mechanism.value}" for each in declaration.first_credentials]
    )
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DeclarationError(f"{declaration.origin}: {name} is declared twice" for name in twice)
    return declaration
