"""The authorizer by access control entries: a fold over their records.

What denies wins over what allows, whichever is more specific. Who is in ``super.users`` may do everything. What no
entry is about, nobody may do, unless ``allow.everyone.if.no.acl.found`` is set.

A check looks at the entries of the principal and at those of everybody, never at those of others: by the name of the
resource, by ``*``, and by those of its prefixes that have the length of some entry's name. Answers are kept until an
entry changes.

Source: Kafka's StandardAuthorizerData, Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Final

import attrs

from kafka_wire.acl import WILDCARD, AclOperation, PatternType, ResourceType
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import ANY_USER, StandardAcl

REMEMBERED_ANSWERS: Final = 20_000
"""Answers kept at a time, of about 300 bytes each with their keys: all are dropped beyond. Clients choose the names."""

Question = tuple[KafkaPrincipal, str, AclOperation, ResourceType, str | None]
"""A principal, its address, what it would do, and to what: None stands for any resource of the type."""


@attrs.define(eq=False)
class PrincipalAcls:
    """The entries about one type of resources, of one principal or of all."""

    literal: dict[str, list[StandardAcl]] = attrs.Factory(dict)
    prefixed: dict[str, list[StandardAcl]] = attrs.Factory(dict)
    prefix_lengths: Counter[int] = attrs.Factory(Counter)

    def add(self, acl: StandardAcl) -> None:
        self._by_name(acl).setdefault(acl.resource_name, []).append(acl)
        if acl.pattern_type is PatternType.PREFIXED:
            self.prefix_lengths[len(acl.resource_name)] += 1

    def remove(self, acl: StandardAcl) -> None:
        """Take away ``acl``, which was added before; another one that says the same stays."""
        by_name = self._by_name(acl)
        by_name[acl.resource_name].remove(acl)
        if not by_name[acl.resource_name]:
            del by_name[acl.resource_name]
        if acl.pattern_type is PatternType.PREFIXED:
            self.prefix_lengths[len(acl.resource_name)] -= 1
            # Or the lengths that there have ever been would be tried.
            self.prefix_lengths += Counter()

    @property
    def is_empty(self) -> bool:
        return not self.literal and not self.prefixed

    def _by_name(self, acl: StandardAcl) -> dict[str, list[StandardAcl]]:
        return self.prefixed if acl.pattern_type is PatternType.PREFIXED else self.literal

    def about(self, name: str) -> Iterator[StandardAcl]:
        """The entries about the resource ``name``."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())

    def all(self) -> Iterator[StandardAcl]:
        for by_name in (self.literal, self.prefixed):
            for acls in by_name.values():
                yield from acls


NO_ACLS: Final = PrincipalAcls()


class StandardAuthorizer:
    """Implements ``Authorizer``. ``add`` and ``remove`` follow the records, by the ids of the entries."""

    def __init__(self, super_users: frozenset[str] = frozenset(), *, allow_everyone_if_no_acl_found: bool) -> None:
        self.super_users = super_users
        self.generation = 0
        self.allows_unless_found = allow_everyone_if_no_acl_found
        self._by_id: dict[bytes, StandardAcl] = {}
        self._by_principal: dict[tuple[ResourceType, str], PrincipalAcls] = {}
        self._by_type: dict[ResourceType, PrincipalAcls] = {}
        self._answers: dict[Question, bool] = {}

    @property
    def acls(self) -> Mapping[bytes, StandardAcl]:
        """All entries, by their ids."""
        return self._by_id

    # --- records ---

    def add(self, acl_id: bytes, acl: StandardAcl) -> None:
        """Follow the record that creates ``acl``."""
        self.remove(acl_id)
        self._by_id[acl_id] = acl
        self._by_principal.setdefault((acl.resource_type, acl.principal), PrincipalAcls()).add(acl)
        self._by_type.setdefault(acl.resource_type, PrincipalAcls()).add(acl)

    def remove(self, acl_id: bytes) -> None:
        """Follow the record that removes an entry; nothing happens if it is not there."""
        self._answers.clear()
        self.generation += 1
        if (acl := self._by_id.pop(acl_id, None)) is not None:
            owner = (acl.resource_type, acl.principal)
            self._by_principal[owner].remove(acl)
            # Or each principal that has ever had an entry would be kept.
            if self._by_principal[owner].is_empty:
                del self._by_principal[owner]
            self._by_type[acl.resource_type].remove(acl)

    # --- answers ---

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """See ``Authorizer``."""
        question = (principal, host, operation, resource_type, name)
        answer = self._answers.get(question)
        if answer is None:
            rule = self._rule(principal, host, operation, resource_type, name)
            answer = self._remember(question, not rule.is_deny if isinstance(rule, StandardAcl) else rule)
        return answer

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See ``Authorizer``."""
        question = (principal, host, operation, resource_type, None)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._remember(question, self._has_resource(principal, host, operation, resource_type))
        return answer

    def reason(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> str:
        """See ``Authorizer``."""
        if str(principal) in self.super_users:
            return "super user"
        rule = self._rule(principal, host, operation, resource_type, name)
        return str(rule) if isinstance(rule, StandardAcl) else "no entry"

    def _remember(self, question: Question, answer: bool) -> bool:
        if len(self._answers) >= REMEMBERED_ANSWERS:
            self._answers.clear()
        self._answers[question] = answer
        return answer

    def _rule(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> StandardAcl | bool:
        """The entry that decides, one that denies before all others; the answer itself where none does."""
        text = str(principal)
        if text in self.super_users:
            return True
        allowing = None
        for owner in {text, ANY_USER}:
            for acl in self._by_principal.get((resource_type, owner), NO_ACLS).about(name):
                if acl.decides(operation) and acl.is_from(host):
                    if acl.is_deny:
                        return acl
                    allowing = acl
        if allowing is not None:
            return allowing
        return self.allows_unless_found and not any(self._by_type.get(resource_type, NO_ACLS).about(name))

    def _has_resource(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        # Any name that no entry has: Kafka asks for one, too, which answers for super users and where all is allowed.
        if self.authorize(principal, host, operation, resource_type, "hardcode"):
            return True
        acls = [
            acl
            for owner in {str(principal), ANY_USER}
            for acl in self._by_principal.get((resource_type, owner), NO_ACLS).all()
            if acl.operation in (AclOperation.ALL, operation) and acl.is_from(host)
        ]
        denied = {(acl.pattern_type, acl.resource_name) for acl in acls if acl.is_deny}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not acl.is_deny and _leaves_something(acl, denied) for acl in acls)


def _leaves_something(acl: StandardAcl, denied: Set[tuple[PatternType, str]]) -> bool:
    """Whether ``acl`` allows more than nothing where these patterns are ``denied``."""
    pattern, name = acl.pattern_type, acl.resource_name
    if (pattern, name) == (PatternType.LITERAL, WILDCARD):
        return True
    prefixes = ((PatternType.PREFIXED, name[:length]) for length in range(1, len(name) + 1))
    return (pattern, name) not in denied and denied.isdisjoint(prefixes)
