"""What a request takes: the rights that an API declares beside its handler, and how they are asked for.

* ``ForRequest``: without the right the whole request is refused.
* ``ForEach``: the items of a list that the client has no right to are refused, each in the answer's own way, and the
  handler does not see them.
* ``InHandler``: the handler asks, because what is refused depends on more than the request.

Each is checked before it is looked at whether there is such a resource, so that a refusal shows nothing of it. An API
that takes no right says why.

Source: the table in Kafka's documentation (Authorization and ACLs), and KafkaApis, ControllerApis, AclApis, AuthHelper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from kafka_wire.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.metadata_image import MetadataImage

ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The refusal of a client without a right to a resource."""


@attrs.frozen
class Right:
    """The right to do something to resources of one type."""

    operation: AclOperation
    resource_type: ResourceType

    @property
    def error(self) -> ErrorCode:
        return ERRORS[self.resource_type]

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource_type.name}"


def not_authorized(right: Right) -> KafkaError:
    """The refusal of a client without ``right``. It does not say whether there is such a resource."""
    return KafkaError(f"not authorized: {right}", code=right.error)


READ_TOPIC = Right(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC = Right(AclOperation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Right(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Right(AclOperation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Right(AclOperation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Right(AclOperation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP = Right(AclOperation.READ, ResourceType.GROUP)
DELETE_GROUP = Right(AclOperation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Right(AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.GROUP)
WRITE_TRANSACTIONAL_ID = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER = Right(AclOperation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER = Right(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
DELETE_CLUSTER = Right(AclOperation.DELETE, ResourceType.CLUSTER)
CLUSTER_ACTION = Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
DESCRIBE_DELEGATION_TOKEN = Right(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
CREATE_TOKENS = Right(AclOperation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS = Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER)


def the_cluster(request: Any) -> str:
    """The name of the only resource of its type."""
    return CLUSTER_NAME


@attrs.frozen
class ForRequest:
    """Any of ``rights`` to the resource that ``name`` finds in a request; None stands for a request that takes none.
    The refusal is that of the last."""

    rights: Sequence[Right]
    name: Callable[[Any], str | None] = the_cluster

    @property
    def refusal(self) -> str:
        return f"the request: {self.rights[-1].error.name}"


@attrs.frozen
class ForEach:
    """A right to each item of the list ``items`` of a request, whose results are the list ``results`` of the response.

    ``name`` finds an item's resource, None where there is none that could be asked about; ``right`` chooses among
    ``rights`` where they depend on the item. Who has the right ``unless`` to the cluster is asked for nothing else.
    """

    rights: Sequence[Right]
    items: str
    results: str
    name: Callable[[Any, MetadataImage], str | None]
    right: Callable[[Any], Right | None] | None = None
    unless: Right | None = None

    def right_to(self, item: Any) -> Right | None:
        """What is asked for one item; None if nothing is."""
        return self.rights[0] if self.right is None else self.right(item)

    @property
    def refusal(self) -> str:
        codes = dict.fromkeys(right.error.name for right in self.rights)
        return f"the item: {', '.join(codes)}"


@attrs.frozen
class InHandler:
    """Rights that the handler asks for. ``refusal`` says what becomes of a request, or of its items, without them."""

    rights: Sequence[Right]
    refusal: str


@attrs.frozen
class NoRight:
    """None is asked for. ``refusal`` says why."""

    refusal: str
    rights: Sequence[Right] = ()


Requirement = ForRequest | ForEach | InHandler | NoRight


def rights_of(requirement: Requirement) -> Sequence[Right]:
    """All that may be asked for."""
    if isinstance(requirement, ForEach) and requirement.unless is not None:
        return (requirement.unless, *requirement.rights)
    return requirement.rights


# --- What requests name ---


def for_cluster(*rights: Right) -> ForRequest:
    return ForRequest(rights)


def for_group(right: Right) -> ForRequest:
    return ForRequest([right], lambda request: request.group_id)


def for_transactional_id(right: Right) -> ForRequest:
    """Of a request that need not have one."""
    return ForRequest([right], lambda request: request.transactional_id)


def itself(item: str, image: MetadataImage) -> str:
    return item


def its_name(item: Any, image: MetadataImage) -> str | None:
    name: str | None = item.name
    return name


def its_topic(item: Any, image: MetadataImage) -> str | None:
    topic: str | None = item.topic
    return topic


def its_name_or_id(item: Any, image: MetadataImage) -> str | None:
    """The name of a topic that may be named by its id alone; None for an id that no topic has."""
    if item.name:
        name: str = item.name
        return name
    topic = image.topics_by_id.get(item.topic_id)
    return None if topic is None else topic.name


# --- Settings ---


def config_rights(topic: Right, group: Right, cluster: Right, *, results: str) -> ForEach:
    """The rights to settings of topics and of groups, and to those of brokers, loggers and subscriptions, which are the
    cluster's. A type that is not known takes no right: it is refused to everybody."""
    rights = {
        ConfigResourceType.TOPIC: topic,
        ConfigResourceType.GROUP: group,
        ConfigResourceType.BROKER: cluster,
        ConfigResourceType.BROKER_LOGGER: cluster,
        ConfigResourceType.CLIENT_METRICS: cluster,
    }
    return ForEach(
        [topic, group, cluster], "resources", results, config_owner, lambda item: rights.get(item.resource_type)
    )


def config_owner(item: Any, image: MetadataImage) -> str:
    """The resource whose right it takes to see or change the settings of ``item``."""
    name: str = item.resource_name
    return name if item.resource_type in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP) else CLUSTER_NAME
