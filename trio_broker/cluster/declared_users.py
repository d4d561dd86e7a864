"""Carries out what is declared of users' rights, and of quotas; passwords are in ``declared_credentials``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_wire.acl import WILDCARD
from kafka_wire.errors import KafkaError
from trio_broker.cluster.acl_control import acl_of, acl_records, require_valid
from trio_broker.cluster.client_quota_control import QuotaAlteration, quotas_of
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.declaration.declaration import Declaration, DeclarationError
from trio_broker.declaration.rights_text import GrantedRight
from trio_broker.declaration.user_plan import CurrentUser, DefaultQuotaPlan, UserPlan, plan_default_quotas, plan_users
from trio_broker.quota.client_quotas import DEFAULT, USER
from trio_broker.security.new_acls import entry_of, principal_of


def plan_users_on_image(declaration: Declaration, image: MetadataImage, config: BrokerConfig) -> tuple[UserPlan, ...]:
    """Return what is to be done about the rights and quotas of each declared user.

    Raises:
        DeclarationError: a right could never count.
    """
    if reasons := list(_reasons_against(declaration, config)):
        raise DeclarationError(reasons)
    rights: dict[str, set[GrantedRight]] = {}
    for acl in map(acl_of, acl_records(image).values()):
        if acl.host == WILDCARD:
            right = GrantedRight(acl.operation, acl.resource_type, acl.resource_name, acl.pattern_type, acl.is_deny)
            rights.setdefault(acl.principal, set()).add(right)
    quotas = quotas_of(image).of_entities

    def find(name: str) -> CurrentUser:
        return CurrentUser(rights.get(principal_of(name), ()), quotas.get(frozenset({(USER, name)}), {}))

    return plan_users(declaration.users, find)


def _reasons_against(declaration: Declaration, config: BrokerConfig) -> Iterator[str]:
    for user in declaration.users:
        if user.rights and not config.authorizer.authorizer_class_name:
            yield f"{user}: rights have no effect without authorizer.class.name"
        for right in user.rights:
            try:
                require_valid(entry_of(right, user.name))
            except KafkaError as error:
                yield f"{user}: {error}"


def plan_default_quotas_on_image(declaration: Declaration, image: MetadataImage) -> tuple[DefaultQuotaPlan, ...]:
    """Return what is to be done about the quotas of who has none."""
    quotas = quotas_of(image).of_entities
    return tuple(
        plan_default_quotas(each, quotas.get(frozenset({(each.entity_type, DEFAULT)}), {}))
        for each in declaration.default_quotas
    )


async def grant_rights(plans: Iterable[UserPlan], controller: ControllerClient) -> list[str]:
    """Create the entries that are missing; return what is refused, a line each."""
    wanted = [(plan, entry_of(right, plan.declared.name)) for plan in plans for right in plan.rights]
    if not wanted:
        return []
    outcomes = await controller.create_acls([acl for _, acl in wanted])
    return [
        f"{plan.declared}: {outcome}"
        for (plan, _), outcome in zip(wanted, outcomes, strict=True)
        if isinstance(outcome, KafkaError)
    ]


async def set_quotas(
    users: Iterable[UserPlan],
    defaults: Iterable[DefaultQuotaPlan],
    controller: ControllerClient,
    *,
    validate_only: bool,
) -> list[str]:
    """Set the quotas that differ, or only check them; return what is refused, a line each."""
    changed: list[tuple[object, QuotaAlteration]] = [
        (each.declared, QuotaAlteration(((USER, each.declared.name),), tuple(each.quotas.items())))
        for each in users
        if each.quotas
    ]
    changed += [
        (each.declared, QuotaAlteration(((each.declared.entity_type, DEFAULT),), tuple(each.quotas.items())))
        for each in defaults
        if each.quotas
    ]
    if not changed:
        return []
    outcomes = await controller.alter_client_quotas([each for _, each in changed], validate_only=validate_only)
    return [f"{declared}: {error}" for (declared, _), error in zip(changed, outcomes, strict=True) if error is not None]
