"""Quotas of users, client ids and addresses: which are set, and changes of them.

Source: Kafka's DescribeClientQuotas and AlterClientQuotas APIs; KIP-546.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kafka_wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from kafka_wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from trio_broker.client.errors import check, only
from trio_broker.client.kafka_client import KafkaClient

EXACT_MATCH = 0
DEFAULT_MATCH = 1
"""How a component of a filter matches: by its name, or the default of its type."""


@attrs.frozen(order=True)
class QuotaEntityName:
    """A part of whom a quota is for: a ``user``, ``client-id`` or ``ip`` by its name; None is the default of all."""

    type: str
    name: str | None

    def __str__(self) -> str:
        return f"default {self.type}" if self.name is None else f"{self.type} {self.name!r}"


@attrs.frozen
class EntityQuotas:
    """The quotas of one entity, which is one part, or a user and a client id."""

    entity: tuple[QuotaEntityName, ...]
    values: Mapping[str, float]


def describe_client_quotas(client: KafkaClient, parts: Sequence[QuotaEntityName]) -> list[EntityQuotas]:
    """Return the quotas of all entities that have these parts, and perhaps further ones.

    Raises:
        Refused: the caller may not describe the settings of the cluster.
    """
    components = [
        ComponentData(
            entity_type=part.type, match_type=DEFAULT_MATCH if part.name is None else EXACT_MATCH, match=part.name
        )
        for part in parts
    ]

    def ask() -> list[EntityQuotas]:
        response = client.ask(client.any_broker(), DescribeClientQuotasRequest(components=components, strict=False))
        check("quotas", response.error_code, response.error_message)
        found = [
            EntityQuotas(
                # The user first, as in the names of the options.
                tuple(QuotaEntityName(each.entity_type, each.entity_name) for each in reversed_by_type(entry.entity)),
                {each.key: each.value for each in entry.values},
            )
            for entry in response.entries or []
        ]
        return sorted(found, key=lambda each: [(part.type, part.name or "") for part in each.entity])

    return client.attempt(ask)


def reversed_by_type(entity: Sequence[EntityData]) -> list[EntityData]:
    return sorted(entity, key=lambda each: each.entity_type, reverse=True)


def alter_client_quotas(
    client: KafkaClient,
    entity: Sequence[QuotaEntityName],
    changes: Mapping[str, float | None],
    *,
    validate_only: bool,
) -> None:
    """Set quotas of one entity, or remove those that are None: all of them or none. With ``validate_only``, only check.

    Raises:
        Refused: there is no such quota, or the value is not allowed.
    """
    entry = AlterClientQuotasRequest.EntryData(
        entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    subject = ", ".join(map(str, entity))

    def ask() -> None:
        request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        result = only(client.ask(client.controller(), request).entries, subject)
        check(subject, result.error_code, result.error_message)

    client.attempt(ask)
