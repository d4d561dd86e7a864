"""Decides about quotas of clients.

Source: Kafka's ClientQuotaControlManager and ClientQuotaEntity.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ClientQuotaRecord, EntityData
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.quota.client_quotas import CLIENT_ID, IP, IP_KEYS, USER, USER_AND_CLIENT_KEYS, ClientQuotas, QuotaKey

INTEGRAL_LIMITS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
"""The keys whose values have no fractions, with Kafka's type and what fits into it."""

FRACTION: Final = 1e-6
"""What is closer to a whole number is one, as in Kafka."""


@attrs.frozen
class QuotaAlteration:
    """New values of an entity by key; None removes one. A client may name either twice."""

    entity: tuple[tuple[str, str | None], ...]
    ops: tuple[tuple[str, float | None], ...]


def quotas_of(image: MetadataImage) -> ClientQuotas:
    """The quotas that are set."""
    records = image.records_of(ClientQuotaRecord)
    return ClientQuotas.of((entity, key, record.value) for (entity, key), record in records.items())


def decide_client_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration]
) -> Iterator[ControllerResult[None] | KafkaError]:
    """Decide about each entity for itself."""
    quotas = quotas_of(image)
    seen: set[frozenset[tuple[str, str | None]]] = set()
    for alteration in alterations:
        entity = frozenset(alteration.entity)
        is_again = entity in seen
        seen.add(entity)
        yield attempt(partial(_decide, quotas, alteration, is_again=is_again))


def _decide(quotas: ClientQuotas, alteration: QuotaAlteration, *, is_again: bool) -> ControllerResult[None]:
    """Raises:
    KafkaError: INVALID_REQUEST.
    """
    if is_again:
        raise _invalid(f"{_shown(alteration)} stands twice in the request")
    known_keys = _require_entity(alteration)
    current = quotas.of_entities.get(frozenset(alteration.entity), {})
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in alteration.entity]
    records = []
    changed: set[str] = set()
    for key, value in alteration.ops:
        if key in changed:
            raise _invalid(f"{key} stands twice for {_shown(alteration)}")
        changed.add(key)
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(entity=entity, key=key, value=0.0, remove=True))
            continue
        _require_value(known_keys, key, value)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(entity=entity, key=key, value=value, remove=False))
    return ControllerResult(None, records)


def _require_entity(alteration: QuotaAlteration) -> Mapping[str, QuotaKey]:
    """The keys that quotas of such an entity may have."""
    types = [kind for kind, _ in alteration.entity]
    if not types:
        raise _invalid("the entity is empty: name a user, a client id or an address")
    for kind, name in alteration.entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"{kind!r} is no type of entity; there are {USER}, {CLIENT_ID} and {IP}")
        if types.count(kind) > 1:
            raise _invalid(f"{kind} stands twice in the entity")
        if name == "":
            raise _invalid(f"the {kind} is empty")
    if IP not in types:
        return {key.value: key for key in USER_AND_CLIENT_KEYS}
    if len(types) > 1:
        raise _invalid(f"{IP} stands alone, without {USER} and {CLIENT_ID}")
    [(_, address)] = alteration.entity
    # Kafka takes a host name too, and looks it up in the controller's request; connections come from addresses.
    if address is not None:
        try:
            ipaddress.ip_address(address)
        except ValueError as error:
            raise _invalid(f"the ip is none: {error}") from None
    return {key.value: key for key in IP_KEYS}


def _require_value(known_keys: Mapping[str, QuotaKey], name: str, value: float) -> None:
    if (key := known_keys.get(name)) is None:
        raise _invalid(f"{name!r} is no quota of such an entity; there are {', '.join(sorted(known_keys))}")
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{name} must be greater than 0, and is {value}")
    if (limit := INTEGRAL_LIMITS.get(key)) is None:
        return
    if value > limit[1]:
        raise _invalid(f"{name} does not fit into a {limit[0]}")
    if abs(value % 1.0) > FRACTION:
        raise _invalid(f"{name} has no fractions")


def _shown(alteration: QuotaAlteration) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in alteration.entity)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(reason, code=ErrorCode.INVALID_REQUEST)
