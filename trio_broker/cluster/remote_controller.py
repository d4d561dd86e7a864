"""The controller of several brokers, as the parts of one of them ask it: here or on another broker.

What a client could ask as well goes in an Envelope, in the name of the client for which this broker works; what only
brokers ask goes as it is. Heartbeats and ISRs have connections of their own, since a broker answers one request of a
connection after the other: a slow CreateTopics must not have this broker fenced.

Source: Kafka's ForwardingManager, BrokerLifecycleManager, AlterPartitionManager and RPCProducerIdManager.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import RequestHeader
from kafka_wire.messages import alter_configs, incremental_alter_configs
from kafka_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafka_wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from kafka_wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kafka_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafka_wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from kafka_wire.messages.create_acls import CreateAclsRequest
from kafka_wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafka_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.describe_client_quotas import EntityData
from kafka_wire.primitives import NO_BROKER_EPOCH
from kafka_wire.schema import Request
from trio_broker.changes.audit_context import CALLER
from trio_broker.cluster.alter_partition import PartitionAlteration
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.broker_liveness import BrokerHeartbeatReply
from trio_broker.cluster.client_quota_control import QuotaAlteration
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.configuration_control import (
    ConfigChange,
    ResourceAlterations,
    ResourceReplacement,
    refusal_here,
)
from trio_broker.cluster.controller_channel import ControllerChannels, NotController, SendToController
from trio_broker.cluster.controller_client import ConfigOutcome, ControllerClient
from trio_broker.cluster.directory_assignments import DirectoryAssignment
from trio_broker.cluster.envelopes import NO_CLIENT, enveloped, opened
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, PartitionImage, TopicImage
from trio_broker.cluster.producer_ids import ProducerIdBlock
from trio_broker.cluster.replication_control import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicTarget,
    decide_topic_deletions,
)
from trio_broker.cluster.scram_control import ScramChange, ScramDeletion, ScramUpsertion
from trio_broker.cluster.write_operations import outcomes_of
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigSource
from trio_broker.runtime.workers import Workers
from trio_broker.security.new_acls import acl_creation
from trio_broker.security.standard_acl import StandardAcl

ResponseT = TypeVar("ResponseT")

TIMEOUT_MS: Final = 30_000
"""What requests say of how long the controller may take; it does not look at it."""


@attrs.define(eq=False)
class RemoteController:
    """Implements ``ControllerClient``. ``controller`` is this broker's own, which decides while it is the controller.

    An answer of another broker does not say that this broker follows it yet: a moment later it does.
    """

    controller: ControllerClient
    channels: ControllerChannels
    metadata_cache: MetadataCache
    config: BrokerConfig
    cluster_id: str
    workers: Workers

    # --- What clients could ask as well ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )

        async def there(send: SendToController) -> list[CreatedTopic | KafkaError]:
            response = await _forwarded(send, request)
            return [_error_of(each) or _created(each) for each in response.topics]

        return await self.channels.requests.call(
            lambda: self.controller.create_topics(topics, validate_only=validate_only), there
        )

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[NewPartitions | KafkaError]:
        request = CreatePartitionsRequest(
            topics=[_grown(topic) for topic in topics], timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )

        async def there(send: SendToController) -> list[NewPartitions | KafkaError]:
            response = await _forwarded(send, request)
            return [_error_of(each) or topic for topic, each in zip(topics, response.results, strict=True)]

        return await self.channels.requests.call(
            lambda: self.controller.create_partitions(topics, validate_only=validate_only), there
        )

    async def delete_topics(
        self, targets: Sequence[TopicTarget], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        # As this broker knows them, since the answer has no more than their names; and a deletion cannot be tried.
        decisions = list(await run_steps(decide_topic_deletions(self.metadata_cache.image, self.config, targets)))
        known = await outcomes_of(decisions)
        if validate_only:
            return known
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=each.name, topic_id=each.topic_id) for each in targets],
            timeout_ms=TIMEOUT_MS,
        )

        async def there(send: SendToController) -> list[TopicImage | KafkaError]:
            response = await _forwarded(send, request)
            return [_error_of(each) or topic for topic, each in zip(known, response.responses, strict=True)]

        return await self.channels.requests.call(lambda: self.controller.delete_topics(targets), there)

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        async def there(send: SendToController) -> ConfigOutcome:
            results: dict[ConfigResource, ConfigResource | KafkaError] = {}
            image, config, workers = self.metadata_cache.image, self.config, self.workers
            for change in changes:
                if (refusal := await refusal_here(image, config, workers, change)) is not None:
                    results[change.resource] = refusal
            for request in _config_requests([each for each in changes if each.resource not in results], validate_only):
                for each in (await _forwarded(send, request)).responses:
                    resource = ConfigResource(ConfigResourceType(each.resource_type), each.resource_name)
                    results[resource] = _error_of(each) or resource
            return ConfigOutcome([results[each.resource] for each in changes], ())

        return await self.channels.requests.call(
            lambda: self.controller.change_configs(changes, validate_only=validate_only), there
        )

    async def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> Mapping[str, KafkaError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[_scram_deletion(each) for each in changes if isinstance(each, ScramDeletion)],
            upsertions=[_scram_upsertion(each) for each in changes if isinstance(each, ScramUpsertion)],
        )

        async def there(send: SendToController) -> Mapping[str, KafkaError | None]:
            return {each.user: _error_of(each) for each in (await _forwarded(send, request)).results}

        return await self.channels.requests.call(lambda: self.controller.alter_scram_credentials(changes), there)

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        entries = [_quota_entry(each) for each in alterations]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        async def there(send: SendToController) -> list[KafkaError | None]:
            return [_error_of(each) for each in (await _forwarded(send, request)).entries]

        return await self.channels.requests.call(
            lambda: self.controller.alter_client_quotas(alterations, validate_only=validate_only), there
        )

    async def create_acls(self, acls: Sequence[StandardAcl]) -> list[StandardAcl | KafkaError]:
        request = CreateAclsRequest(creations=list(map(acl_creation, acls)))

        async def there(send: SendToController) -> list[StandardAcl | KafkaError]:
            results = (await _forwarded(send, request)).results
            return [_error_of(each) or acl for acl, each in zip(acls, results, strict=True)]

        return await self.channels.requests.call(lambda: self.controller.create_acls(acls), there)

    # --- What brokers ask ---

    async def register_broker(self, node: NodeRegistration) -> int:
        request = BrokerRegistrationRequest(
            broker_id=node.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=node.incarnation_id,
            listeners=[
                Listener(
                    name=each.listener_name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in node.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
                for name, levels in node.features.items()
            ],
            rack=node.rack,
            log_dirs=list(node.log_dirs),
            previous_broker_epoch=node.previous_broker_epoch,
        )

        async def there(send: SendToController) -> int:
            broker_epoch: int = (await _answered(send, request)).broker_epoch
            return broker_epoch

        return await self.channels.lifecycle.call(lambda: self.controller.register_broker(node), there)

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        request = BrokerHeartbeatRequest(
            broker_id=heartbeat.broker_id,
            broker_epoch=heartbeat.broker_epoch,
            current_metadata_offset=heartbeat.current_metadata_offset,
            want_fence=heartbeat.want_fence,
            want_shut_down=heartbeat.want_shut_down,
            offline_log_dirs=sorted(heartbeat.offline_log_dirs),
        )

        async def there(send: SendToController) -> BrokerHeartbeatReply:
            response = await _answered(send, request)
            return BrokerHeartbeatReply(
                is_caught_up=response.is_caught_up,
                is_fenced=response.is_fenced,
                # The answer does not say it; a broker that wants to stop and may not yet is on its way.
                in_controlled_shutdown=heartbeat.want_shut_down and not response.should_shut_down,
                should_shut_down=response.should_shut_down,
            )

        return await self.channels.lifecycle.call(lambda: self.controller.heartbeat(heartbeat), there)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[PartitionImage | KafkaError]:
        by_topic: dict[bytes, list[PartitionAlteration]] = {}
        for each in alterations:
            by_topic.setdefault(each.topic_id, []).append(each)
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=[
                AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[_alteration_data(each) for each in some])
                for topic_id, some in by_topic.items()
            ],
        )

        async def there(send: SendToController) -> list[PartitionImage | KafkaError]:
            response = await _answered(send, request)
            found = {
                (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
            }
            return [self._altered(each, found.get((each.topic_id, each.index))) for each in alterations]

        return await self.channels.alterations.call(
            lambda: self.controller.alter_partitions(broker_id, broker_epoch, alterations), there
        )

    def _altered(self, wanted: PartitionAlteration, data: PartitionData | None) -> PartitionImage | KafkaError:
        topic = self.metadata_cache.image.topics_by_id.get(wanted.topic_id)
        partition = None if topic is None else topic.partitions.get(wanted.index)
        if data is None or partition is None:
            return KafkaError("the partition is not known", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if data.error_code != ErrorCode.NONE:
            return KafkaError(code=ErrorCode(data.error_code))
        return attrs.evolve(
            partition,
            leader=data.leader_id,
            leader_epoch=data.leader_epoch,
            isr=tuple(data.isr),
            leader_recovery_state=data.leader_recovery_state,
            partition_epoch=data.partition_epoch,
        )

    async def assign_replicas(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[KafkaError | None]:
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, directories=_directories_of(assignments)
        )

        async def there(send: SendToController) -> list[KafkaError | None]:
            response = await _answered(send, request)
            codes = {
                (topic.topic_id, each.partition_index): ErrorCode(each.error_code)
                for directory in response.directories
                for topic in directory.topics
                for each in topic.partitions
            }
            found = (codes.get((each.topic_id, each.index), ErrorCode.UNKNOWN_SERVER_ERROR) for each in assignments)
            return [None if code is ErrorCode.NONE else KafkaError(code=code) for code in found]

        return await self.channels.requests.call(
            lambda: self.controller.assign_replicas(broker_id, broker_epoch, assignments), there
        )

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        own_id = self.config.node.node_id
        broker = self.metadata_cache.image.brokers.get(own_id)
        epoch = NO_BROKER_EPOCH if broker is None else broker.broker_epoch
        request = AllocateProducerIdsRequest(broker_id=own_id, broker_epoch=epoch)

        async def there(send: SendToController) -> ProducerIdBlock:
            response = await _answered(send, request)
            first = response.producer_id_start
            return ProducerIdBlock(first, first + response.producer_id_len)

        return await self.channels.requests.call(self.controller.allocate_producer_ids, there)


# --- Requests, of what the controller takes ---


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(broker_ids))
            for index, broker_ids in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        name=result.name,
        topic_id=result.topic_id,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs={
            each.name: each.value or ""
            for each in result.configs or ()
            if each.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
    )


def _grown(topic: NewPartitions) -> CreatePartitionsTopic:
    assignments = topic.assignments
    return CreatePartitionsTopic(
        name=topic.name,
        count=topic.count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=list(broker_ids)) for broker_ids in assignments],
    )


def _config_requests(changes: Sequence[ConfigChange], validate_only: bool) -> Iterator[Request[Any]]:
    """The requests for changes of either kind, if there are any of it."""
    altered = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=change.resource.type,
            resource_name=change.resource.name,
            configs=[
                incremental_alter_configs.AlterableConfig(
                    name=each.name, config_operation=each.operation, value=each.value
                )
                for each in change.alterations
            ],
        )
        for change in changes
        if isinstance(change, ResourceAlterations)
    ]
    replaced = [
        alter_configs.AlterConfigsResource(
            resource_type=change.resource.type,
            resource_name=change.resource.name,
            configs=[alter_configs.AlterableConfig(name=name, value=value) for name, value in change.configs.items()],
        )
        for change in changes
        if isinstance(change, ResourceReplacement)
    ]
    if altered:
        yield incremental_alter_configs.IncrementalAlterConfigsRequest(resources=altered, validate_only=validate_only)
    if replaced:
        yield alter_configs.AlterConfigsRequest(resources=replaced, validate_only=validate_only)


def _quota_entry(change: QuotaAlteration) -> AlterClientQuotasRequest.EntryData:
    return AlterClientQuotasRequest.EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in change.entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in change.ops],
    )


def _scram_deletion(change: ScramDeletion) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=change.user, mechanism=change.mechanism)


def _scram_upsertion(change: ScramUpsertion) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=change.mechanism,
        iterations=change.iterations,
        salt=change.salt,
        salted_password=change.salted_password,
    )


def _alteration_data(wanted: PartitionAlteration) -> AlterPartitionRequest.PartitionData:
    return AlterPartitionRequest.PartitionData(
        partition_index=wanted.index,
        leader_epoch=wanted.leader_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=each.broker_id, broker_epoch=each.broker_epoch) for each in wanted.isr
        ],
        leader_recovery_state=wanted.leader_recovery_state,
        partition_epoch=wanted.partition_epoch,
    )


def _directories_of(assignments: Sequence[DirectoryAssignment]) -> list[AssignReplicasToDirsRequest.DirectoryData]:
    """The replicas, by directory and topic."""
    indexes: dict[bytes, dict[bytes, list[int]]] = {}
    for each in assignments:
        indexes.setdefault(each.directory_id, {}).setdefault(each.topic_id, []).append(each.index)
    return [
        AssignReplicasToDirsRequest.DirectoryData(
            id=directory_id,
            topics=[
                AssignReplicasToDirsRequest.TopicData(
                    topic_id=topic_id,
                    partitions=[AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in some],
                )
                for topic_id, some in topics.items()
            ],
        )
        for directory_id, topics in indexes.items()
    ]


# --- Sending ---


async def _forwarded(send: SendToController, request: Request[ResponseT]) -> ResponseT:
    """The response to a request that clients may send, in the name of the client for which this task works."""
    origin = CALLER.get().change_origin
    version = request.VERSIONS.high
    header = RequestHeader(request.API_KEY, version, 0, origin.client or None)
    answer = await send(enveloped(header, encode_bytes(request, version), _client_host(origin.address)))
    return decode(type(request).RESPONSE, version, opened(header, answer))[0]


def _client_host(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return NO_CLIENT


async def _answered(send: SendToController, request: Request[Any]) -> Any:
    """The response to a request that only brokers send.

    Raises:
        KafkaError: the request as a whole was refused.
    """
    response = await send(request)
    code = response.error_code
    if code == ErrorCode.NOT_CONTROLLER:
        raise NotController("the broker that was asked is not the controller")
    if code != ErrorCode.NONE:
        raise KafkaError("the controller refuses it", code=ErrorCode(code))
    return response


def _error_of(result: Any) -> KafkaError | None:
    """The error of one item of a response."""
    if result.error_code == ErrorCode.NONE:
        return None
    return KafkaError(result.error_message or "", code=ErrorCode(result.error_code))
