"""The authorizer and the users of a running broker, for the admin app."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from trio_broker.cluster.scram_control import find_credential
from trio_broker.handlers.support.rights import Right
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.sasl.passwords import Passwords

CHECKED_AT_ONCE: Final = 2
"""Passwords, each in a thread for some milliseconds: others wait, and Kafka's clients have the rest of the CPU."""


class LiveAuthorizationView:
    """Asks what decides about Kafka's requests. Without an authorizer everybody may do everything."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        cache = services.metadata_cache
        self.passwords = Passwords(services.config, lambda *wanted: find_credential(cache.image, *wanted))
        self._checking = trio.CapacityLimiter(CHECKED_AT_ONCE)

    def may(self, principal: str, host: str, right: Right, name: str, *, asked_for: str = "") -> bool:
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        question = KafkaPrincipal.parse(principal), host, right.operation, right.resource_type, name
        is_allowed = authorizer.authorize(*question)
        if asked_for:
            self.services.audit_log.note(authorizer, *question, asked_for, is_allowed=is_allowed)
        return is_allowed

    async def is_right(self, user: str, password: str) -> bool:
        check = partial(self.passwords.known(user).is_right, password)
        return await self.services.runtime.workers.run(check, limiter=self._checking)

    def password_mark(self, user: str) -> bytes:
        return self.passwords.known(user).mark
