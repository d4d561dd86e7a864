"""The quotas that are set, and which of them counts for a client.

A quota is for a user, a client id, both together, or an address; each may be the default of its type instead of a name.
The most specific one counts, for each key on its own: that of the user with the client id, that of the user with any
client id, the user's, those of the default user in the same order, and the client id's at last.

Source: Kafka's ClientQuotaManager and ClientQuotasImage; KIP-13, KIP-55, KIP-124, KIP-546, KIP-599 and KIP-612.
"""

from __future__ import annotations

import enum
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import attrs

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

DEFAULT: Final = None
"""In place of a name: the default of its type."""

Entity: TypeAlias = frozenset[tuple[str, str | None]]
"""Whom a quota is for: types, each with a name or ``DEFAULT``."""


class QuotaKey(enum.Enum):
    """What is bounded."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


USER_AND_CLIENT_KEYS: Final = frozenset(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}

IP_KEYS: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})


REMEMBERED_CLIENTS: Final = 10_000
"""Clients whose quota of one key is kept once it was looked for, some 300 bytes each; all are dropped beyond. A Produce
asks four times, and clients choose their ids."""


@attrs.frozen
class Sharers:
    """Those that share what one quota gives: a user with all of its clients, a client id of all users, or both. Empty
    is any."""

    user: str
    client_id: str


@attrs.frozen
class ClientQuotas:
    """The quotas of the cluster. ``of_entities`` has the values of each entity by the names of their keys, ``rates``
    the new connections a second of each address as the system writes it, and of ``DEFAULT`` for all others."""

    of_entities: Mapping[Entity, Mapping[str, float]]
    rates: Mapping[str | None, float]
    _found: dict[tuple[QuotaKey, str, str], tuple[float, Sharers] | None] = attrs.field(
        factory=dict, init=False, eq=False, repr=False
    )

    @classmethod
    def of(cls, quotas: Iterable[tuple[Entity, str, float]]) -> ClientQuotas:
        of_entities: defaultdict[Entity, dict[str, float]] = defaultdict(dict)
        rates: dict[str | None, float] = {}
        for entity, key, value in quotas:
            of_entities[entity][key] = value
            names = dict(entity)
            if names.keys() == {IP} and key == QuotaKey.CONNECTION_CREATION_RATE.value:
                name = names[IP]
                rates[None if name is None else plain_address(name)] = value
        return cls(dict(of_entities), rates)

    @property
    def bound_clients(self) -> bool:
        """Whether any user or client id has a quota."""
        return any(kind != IP for entity in self.of_entities for kind, _ in entity)

    def of_client(self, key: QuotaKey, user: str, client_id: str) -> tuple[float, Sharers] | None:
        """The quota of one key that counts for a client, and with whom the client shares it; None without a bound."""
        asked = key, user, client_id
        try:
            return self._found[asked]
        except KeyError:
            if len(self._found) >= REMEMBERED_CLIENTS:
                self._found.clear()
            found = self._found[asked] = self._find(key, user, client_id)
            return found

    def _find(self, key: QuotaKey, user: str, client_id: str) -> tuple[float, Sharers] | None:
        for entity, sharers in candidates(user, client_id):
            if (value := self.of_entities.get(entity, {}).get(key.value)) is not None:
                return value, sharers
        return None

    def of_address(self, address: str) -> float | None:
        """New connections a second from one address; None without a bound."""
        return self.rates.get(address, self.rates.get(DEFAULT))


NO_QUOTAS: Final = ClientQuotas({}, {})


def plain_address(text: str) -> str:
    """An address in the form that the system gives it; any other text as it is."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Sharers]]:
    """The entities that may have a quota for a client, the most specific one first."""
    both, users_own, clients_own = Sharers(user, client_id), Sharers(user, ""), Sharers("", client_id)
    for name in (user, DEFAULT):
        yield frozenset({(USER, name), (CLIENT_ID, client_id)}), both
        yield frozenset({(USER, name), (CLIENT_ID, DEFAULT)}), both
        yield frozenset({(USER, name)}), users_own
    yield frozenset({(CLIENT_ID, client_id)}), clients_own
    yield frozenset({(CLIENT_ID, DEFAULT)}), clients_own
