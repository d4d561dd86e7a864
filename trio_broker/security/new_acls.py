"""New access control entries: made of the rights of a user, and as CreateAcls has them."""

from __future__ import annotations

from kafka_wire.acl import WILDCARD, AclPermissionType
from kafka_wire.messages.create_acls import AclCreation
from trio_broker.declaration.rights_text import GrantedRight
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.security.standard_acl import StandardAcl


def principal_of(user: str) -> str:
    """As whom entries are about a user."""
    return str(KafkaPrincipal(USER_TYPE, user))


def entry_of(right: GrantedRight, user: str) -> StandardAcl:
    """The entry by which a user has a right, or has it denied."""
    return StandardAcl(
        right.resource_type,
        right.resource_name,
        right.pattern_type,
        principal_of(user),
        WILDCARD,
        right.operation,
        AclPermissionType.DENY if right.is_denial else AclPermissionType.ALLOW,
    )


def acl_creation(acl: StandardAcl) -> AclCreation:
    """The part of a request that asks for ``acl``."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
