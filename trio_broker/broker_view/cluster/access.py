"""Entries, quotas, users and tokens for the admin app: as the image has them, and changed by the controller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from broker_admin.views.cluster.access import (
    DEFAULT_NAME,
    AccessRefused,
    AclEntry,
    QuotaEntity,
    QuotaEntry,
    ScramUser,
    TokenEntry,
)
from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.sasl.scram import MECHANISMS_BY_NUMBER
from kafka_wire.stored.metadata import DelegationTokenRecord
from trio_broker.broker_view.cluster.replication import LiveReplicationView
from trio_broker.broker_view.cluster.topic_changes import called_by, only_outcome
from trio_broker.cluster.acl_control import acl_of, acl_records, require_valid
from trio_broker.cluster.client_quota_control import QuotaAlteration, quotas_of
from trio_broker.cluster.delegation_token_control import DISABLED, token_hmac, token_records
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.scram_control import credential_records
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.quota.client_quotas import CLIENT_ID, IP, USER, Entity
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import AclFilter, StandardAcl

T = TypeVar("T")

AT_ONCE: Final = -1
"""In place of a time after which a token ends."""

NO_AUTHORIZER: Final = "there is no authorizer (authorizer.class.name), so entries have no effect"


class LiveAccessView:
    """The part of the admin app's view that is about who may do what, and how much of it."""

    def __init__(self, services: BrokerServices, replication: LiveReplicationView) -> None:
        self.services = services
        self.replication = replication

    @property
    def has_authorizer(self) -> bool:
        return self.services.authorizer is not None

    def controller_id(self) -> int | None:
        leader_id = self.replication.controller().leader_id
        return None if leader_id == NO_LEADER else leader_id

    # ---- entries

    async def acls(self) -> Sequence[AclEntry]:
        return [
            shown(acl_of(record)) async for record in InTurns(acl_records(self.services.metadata_cache.image).values())
        ]

    async def create_acl(self, acl: AclEntry, *, changed_by: str, dry_run: bool) -> None:
        wanted = self._changeable(acl)
        if not dry_run:
            with called_by(changed_by):
                await only_outcome(self.services.controller.create_acls([wanted]), refused)

    async def delete_acl(self, acl: AclEntry, *, changed_by: str, dry_run: bool) -> bool:
        wanted = self._changeable(acl)
        if dry_run:
            return acl in await self.acls()
        exactly = AclFilter(
            wanted.resource_type, wanted.resource_name, wanted.pattern_type, wanted.principal, wanted.host,
            wanted.operation, wanted.permission_type,
        )  # fmt: skip
        with called_by(changed_by):
            return bool(await only_outcome(self.services.controller.delete_acls([exactly]), refused))

    def _changeable(self, acl: AclEntry) -> StandardAcl:
        """The entry that is meant.

        Raises:
            AccessRefused: there is no authorizer, or it could never count.
        """
        if not self.has_authorizer:
            raise AccessRefused(ErrorCode.SECURITY_DISABLED.name, NO_AUTHORIZER)
        wanted = stored(acl)
        try:
            require_valid(wanted)
        except KafkaError as error:
            raise refused(error) from error
        return wanted

    # ---- quotas and users

    async def quotas(self) -> Sequence[QuotaEntry]:
        quotas = quotas_of(self.services.metadata_cache.image).of_entities
        return [
            QuotaEntry(entity=shown_entity(entity), quotas=values) async for entity, values in InTurns(quotas.items())
        ]

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, changed_by: str, dry_run: bool
    ) -> None:
        wanted = QuotaAlteration(parts_of(entity), tuple(changes.items()))
        with called_by(changed_by):
            await only_outcome(self.services.controller.alter_client_quotas([wanted], validate_only=dry_run), refused)

    async def users(self) -> Sequence[ScramUser]:
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        async for (name, number), record in InTurns(credential_records(self.services.metadata_cache.image).items()):
            found[name][MECHANISMS_BY_NUMBER[number].value] = record.iterations
        return [ScramUser(name=name, mechanisms=mechanisms) for name, mechanisms in found.items()]

    # ---- delegation tokens

    async def tokens(self) -> Sequence[TokenEntry]:
        return [shown_token(each) async for each in InTurns(token_records(self.services.metadata_cache.image).values())]

    async def end_token(self, token: TokenEntry, *, changed_by: str, dry_run: bool) -> None:
        secret_key = self.services.config.sasl.delegation_token_secret_key
        if not secret_key:
            raise refused(DISABLED)
        if dry_run:
            return
        # Whether the caller may end it was asked before, and not only of the owner.
        owner, secret = KafkaPrincipal.parse(token.owner), token_hmac(secret_key, token.token_id)
        try:
            with called_by(changed_by):
                await self.services.controller.expire_delegation_token(owner, secret, AT_ONCE)
        except KafkaError as error:
            raise refused(error) from error


def refused(error: KafkaError) -> AccessRefused:
    return AccessRefused(ErrorCode(error.code).name, str(error))


def shown(acl: StandardAcl) -> AclEntry:
    return AclEntry(
        resource_type=acl.resource_type.name,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.name,
        permission=acl.permission_type.name,
    )


def stored(acl: AclEntry) -> StandardAcl:
    return StandardAcl(
        resource_type=ResourceType[acl.resource_type],
        resource_name=acl.resource_name,
        pattern_type=PatternType[acl.pattern_type],
        principal=acl.principal,
        host=acl.host,
        operation=AclOperation[acl.operation],
        permission_type=AclPermissionType[acl.permission],
    )


def shown_token(token: DelegationTokenRecord) -> TokenEntry:
    return TokenEntry(
        token_id=token.token_id,
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issued_at_ms=token.issue_timestamp,
        expires_at_ms=token.expiration_timestamp,
        max_at_ms=token.max_timestamp,
    )


def shown_entity(entity: Entity) -> QuotaEntity:
    names = {type_: DEFAULT_NAME if name is None else name for type_, name in entity}
    return QuotaEntity(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))


def parts_of(entity: QuotaEntity) -> tuple[tuple[str, str | None], ...]:
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return tuple((type_, None if name == DEFAULT_NAME else name) for type_, name in named if name is not None)
