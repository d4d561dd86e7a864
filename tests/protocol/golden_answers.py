"""Answers that keep a real client going while its requests are recorded.

Each says just enough for the client to go on to its next request: one broker, one topic of two partitions without any
records, and a group whose only member is the client that asks. Nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from kafka_wire.messages.catalogue import all_requests

TOPIC = "golden"
TOPIC_ID = bytes(range(16))
GROUP = "golden-group"
TRANSACTIONAL_ID = "golden-transaction"
NODE_ID = 1
CLUSTER_ID = "golden-cluster-id-0000"
HEARTBEAT_INTERVAL_MS = 1000
FETCH_PAUSE_SECONDS = 0.2
"""An empty answer to Fetch is held this long, or a client would ask a thousand times while the script goes on."""


def answer(request: Any, version: int, port: int) -> Any:
    """Return the response to ``request``, None for silence; ``port`` is where the broker claims to listen."""
    return ANSWERS[type(request)](request, version, port)


def answer_api_versions(request: api_versions.ApiVersionsRequest, version: int, port: int) -> Any:
    ranges = [
        api_versions.ApiVersion(api_key=key, min_version=kind.VERSIONS.low, max_version=kind.VERSIONS.high)
        for key, kind in sorted(all_requests().items())
    ]
    return api_versions.ApiVersionsResponse(api_keys=ranges)


def answer_metadata(request: metadata.MetadataRequest, version: int, port: int) -> Any:
    wanted = None if request.topics is None else [topic.name or TOPIC for topic in request.topics]
    if wanted is None or (version == 0 and not wanted):
        wanted = [TOPIC]
    broker = metadata.MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=port)
    partitions = [
        metadata.MetadataResponsePartition(
            partition_index=index, leader_id=NODE_ID, leader_epoch=0, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
        )
        for index in range(2)
    ]
    return metadata.MetadataResponse(
        brokers=[broker],
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        topics=[metadata.MetadataResponseTopic(name=n, topic_id=TOPIC_ID, partitions=partitions) for n in wanted],
    )


def answer_produce(request: produce.ProduceRequest, version: int, port: int) -> Any:
    if request.acks == 0:
        return None
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=partition.index, base_offset=0, log_start_offset=0)
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def answer_fetch(request: fetch.FetchRequest, version: int, port: int) -> Any:
    time.sleep(FETCH_PAUSE_SECONDS)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=partition.partition,
                        high_watermark=0,
                        last_stable_offset=0,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_list_offsets(request: list_offsets.ListOffsetsRequest, version: int, port: int) -> Any:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, offset=0, leader_epoch=0 if version >= 4 else -1
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_init_producer_id(request: init_producer_id.InitProducerIdRequest, version: int, port: int) -> Any:
    return init_producer_id.InitProducerIdResponse(producer_id=1000, producer_epoch=0)


def answer_create_topics(request: create_topics.CreateTopicsRequest, version: int, port: int) -> Any:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=topic.name, topic_id=TOPIC_ID, error_message=None)
            for topic in request.topics
        ]
    )


def answer_delete_topics(request: delete_topics.DeleteTopicsRequest, version: int, port: int) -> Any:
    names = request.topic_names or [topic.name or TOPIC for topic in request.topics]
    return delete_topics.DeleteTopicsResponse(
        responses=[delete_topics.DeletableTopicResult(name=name, topic_id=TOPIC_ID) for name in names]
    )


def answer_create_partitions(request: create_partitions.CreatePartitionsRequest, version: int, port: int) -> Any:
    return create_partitions.CreatePartitionsResponse(
        results=[create_partitions.CreatePartitionsTopicResult(name=topic.name) for topic in request.topics]
    )


def answer_describe_configs(request: describe_configs.DescribeConfigsRequest, version: int, port: int) -> Any:
    config = describe_configs.DescribeConfigsResourceResult(
        name="retention.ms", value="1", read_only=False, config_source=1, is_sensitive=False, synonyms=[]
    )
    return describe_configs.DescribeConfigsResponse(
        results=[
            describe_configs.DescribeConfigsResult(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[config],
            )
            for resource in request.resources
        ]
    )


def answer_alter_configs(request: alter_configs.AlterConfigsRequest, version: int, port: int) -> Any:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            for resource in request.resources
        ]
    )


def answer_incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, version: int, port: int
) -> Any:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            for resource in request.resources
        ]
    )


def answer_describe_cluster(request: describe_cluster.DescribeClusterRequest, version: int, port: int) -> Any:
    return describe_cluster.DescribeClusterResponse(
        cluster_id=CLUSTER_ID,
        controller_id=NODE_ID,
        brokers=[describe_cluster.DescribeClusterBroker(broker_id=NODE_ID, host="127.0.0.1", port=port)],
    )


def answer_describe_topic_partitions(
    request: describe_topic_partitions.DescribeTopicPartitionsRequest, version: int, port: int
) -> Any:
    return describe_topic_partitions.DescribeTopicPartitionsResponse(
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                name=topic.name, topic_id=TOPIC_ID, partitions=[]
            )
            for topic in request.topics
        ]
    )


def answer_offset_for_leader_epoch(
    request: offset_for_leader_epoch.OffsetForLeaderEpochRequest, version: int, port: int
) -> Any:
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEndOffset(partition=p.partition, leader_epoch=0, end_offset=0)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_delete_records(request: delete_records.DeleteRecordsRequest, version: int, port: int) -> Any:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(partition_index=p.partition_index, low_watermark=0)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_find_coordinator(request: find_coordinator.FindCoordinatorRequest, version: int, port: int) -> Any:
    if version < 4:
        return find_coordinator.FindCoordinatorResponse(node_id=NODE_ID, host="127.0.0.1", port=port)
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(key=key, node_id=NODE_ID, host="127.0.0.1", port=port, error_message=None)
            for key in request.coordinator_keys
        ]
    )


def answer_join_group(request: join_group.JoinGroupRequest, version: int, port: int) -> Any:
    member_id = request.member_id or "member-1"
    strategy = request.protocols[0]
    return join_group.JoinGroupResponse(
        generation_id=1,
        protocol_type=request.protocol_type,
        protocol_name=strategy.name,
        leader=member_id,
        member_id=member_id,
        members=[join_group.JoinGroupResponseMember(member_id=member_id, metadata=strategy.metadata)],
    )


def answer_sync_group(request: sync_group.SyncGroupRequest, version: int, port: int) -> Any:
    return sync_group.SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=next((a.assignment for a in request.assignments), b""),
    )


def answer_heartbeat(request: heartbeat.HeartbeatRequest, version: int, port: int) -> Any:
    return heartbeat.HeartbeatResponse()


def answer_leave_group(request: leave_group.LeaveGroupRequest, version: int, port: int) -> Any:
    return leave_group.LeaveGroupResponse(
        members=[
            leave_group.MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id)
            for member in request.members
        ]
    )


def answer_offset_commit(request: offset_commit.OffsetCommitRequest, version: int, port: int) -> Any:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(partition_index=p.partition_index)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_offset_fetch(request: offset_fetch.OffsetFetchRequest, version: int, port: int) -> Any:
    if version < 8:
        return offset_fetch.OffsetFetchResponse(
            topics=[
                offset_fetch.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartition(
                            partition_index=index, committed_offset=-1, metadata=""
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
        )
    return offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    offset_fetch.OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            offset_fetch.OffsetFetchResponsePartitions(
                                partition_index=index, committed_offset=-1, metadata=""
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or []
                ],
            )
            for group in request.groups
        ]
    )


def answer_list_groups(request: list_groups.ListGroupsRequest, version: int, port: int) -> Any:
    group = list_groups.ListedGroup(
        group_id=GROUP, protocol_type="consumer", group_state="Stable", group_type="classic"
    )
    return list_groups.ListGroupsResponse(groups=[group])


def answer_describe_groups(request: describe_groups.DescribeGroupsRequest, version: int, port: int) -> Any:
    return describe_groups.DescribeGroupsResponse(
        groups=[
            describe_groups.DescribedGroup(
                group_id=group, group_state="Empty", protocol_type="consumer", protocol_data="", members=[]
            )
            for group in request.groups
        ]
    )


def answer_consumer_group_heartbeat(
    request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest, version: int, port: int
) -> Any:
    if request.member_epoch < 0:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
    mine = consumer_group_heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=1,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        assignment=consumer_group_heartbeat.Assignment(topic_partitions=[mine]),
    )


def answer_consumer_group_describe(
    request: consumer_group_describe.ConsumerGroupDescribeRequest, version: int, port: int
) -> Any:
    return consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[
            consumer_group_describe.DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group in request.group_ids
        ]
    )


def answer_delete_groups(request: delete_groups.DeleteGroupsRequest, version: int, port: int) -> Any:
    return delete_groups.DeleteGroupsResponse(
        results=[delete_groups.DeletableGroupResult(group_id=group) for group in request.groups_names]
    )


def answer_offset_delete(request: offset_delete.OffsetDeleteRequest, version: int, port: int) -> Any:
    return offset_delete.OffsetDeleteResponse(topics=[])


def answer_describe_acls(request: describe_acls.DescribeAclsRequest, version: int, port: int) -> Any:
    return describe_acls.DescribeAclsResponse(error_message=None, resources=[])


def answer_create_acls(request: create_acls.CreateAclsRequest, version: int, port: int) -> Any:
    return create_acls.CreateAclsResponse(
        results=[create_acls.AclCreationResult(error_message=None) for _ in request.creations]
    )


def answer_delete_acls(request: delete_acls.DeleteAclsRequest, version: int, port: int) -> Any:
    return delete_acls.DeleteAclsResponse(
        filter_results=[
            delete_acls.DeleteAclsFilterResult(error_message=None, matching_acls=[]) for _ in request.filters
        ]
    )


def answer_describe_log_dirs(request: describe_log_dirs.DescribeLogDirsRequest, version: int, port: int) -> Any:
    return describe_log_dirs.DescribeLogDirsResponse(results=[])


def answer_alter_replica_log_dirs(
    request: alter_replica_log_dirs.AlterReplicaLogDirsRequest, version: int, port: int
) -> Any:
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(partition_index=index)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def answer_elect_leaders(request: elect_leaders.ElectLeadersRequest, version: int, port: int) -> Any:
    return elect_leaders.ElectLeadersResponse(
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(partition_id=index, error_message=None) for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ]
    )


def answer_alter_partition_reassignments(
    request: alter_partition_reassignments.AlterPartitionReassignmentsRequest, version: int, port: int
) -> Any:
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            alter_partition_reassignments.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    alter_partition_reassignments.ReassignablePartitionResponse(
                        partition_index=p.partition_index, error_message=None
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def answer_list_partition_reassignments(
    request: list_partition_reassignments.ListPartitionReassignmentsRequest, version: int, port: int
) -> Any:
    return list_partition_reassignments.ListPartitionReassignmentsResponse(error_message=None, topics=[])


def answer_describe_user_scram_credentials(
    request: describe_user_scram_credentials.DescribeUserScramCredentialsRequest, version: int, port: int
) -> Any:
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            describe_user_scram_credentials.DescribeUserScramCredentialsResult(
                user=user.name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=None, credential_infos=[]
            )
            for user in request.users or []
        ],
    )


def answer_describe_quorum(request: describe_quorum.DescribeQuorumRequest, version: int, port: int) -> Any:
    return describe_quorum.DescribeQuorumResponse(
        topics=[
            describe_quorum.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    describe_quorum.PartitionData(
                        partition_index=p.partition_index,
                        leader_id=NODE_ID,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[describe_quorum.ReplicaState(replica_id=NODE_ID, log_end_offset=0)],
                        observers=[],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_update_features(request: update_features.UpdateFeaturesRequest, version: int, port: int) -> Any:
    return update_features.UpdateFeaturesResponse(error_message=None)


def answer_add_partitions_to_txn(
    request: add_partitions_to_txn.AddPartitionsToTxnRequest, version: int, port: int
) -> Any:
    def added(topics: list[Any]) -> list[add_partitions_to_txn.AddPartitionsToTxnTopicResult]:
        return [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=ErrorCode.NONE
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]

    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=added(request.v3_and_below_topics),
        results_by_transaction=[
            add_partitions_to_txn.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=added(each.topics)
            )
            for each in request.transactions
        ],
    )


def answer_add_offsets_to_txn(request: add_offsets_to_txn.AddOffsetsToTxnRequest, version: int, port: int) -> Any:
    return add_offsets_to_txn.AddOffsetsToTxnResponse()


def answer_end_txn(request: end_txn.EndTxnRequest, version: int, port: int) -> Any:
    return end_txn.EndTxnResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)


def answer_write_txn_markers(request: write_txn_markers.WriteTxnMarkersRequest, version: int, port: int) -> Any:
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    write_txn_markers.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=index)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def answer_txn_offset_commit(request: txn_offset_commit.TxnOffsetCommitRequest, version: int, port: int) -> Any:
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=p.partition_index)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def answer_describe_transactions(
    request: describe_transactions.DescribeTransactionsRequest, version: int, port: int
) -> Any:
    return describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(
                transactional_id=transactional_id,
                transaction_state="Empty",
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1,
                producer_id=1000,
                producer_epoch=0,
                topics=[],
            )
            for transactional_id in request.transactional_ids
        ]
    )


def answer_list_transactions(request: list_transactions.ListTransactionsRequest, version: int, port: int) -> Any:
    return list_transactions.ListTransactionsResponse(unknown_state_filters=[], transaction_states=[])


def answer_describe_producers(request: describe_producers.DescribeProducersRequest, version: int, port: int) -> Any:
    return describe_producers.DescribeProducersResponse(
        topics=[
            describe_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    describe_producers.PartitionResponse(partition_index=index, active_producers=[])
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def answer_list_config_resources(
    request: list_config_resources.ListConfigResourcesRequest, version: int, port: int
) -> Any:
    return list_config_resources.ListConfigResourcesResponse(config_resources=[])


ANSWERS: Final[dict[type[Any], Callable[[Any, int, int], Any]]] = {
    api_versions.ApiVersionsRequest: answer_api_versions,
    metadata.MetadataRequest: answer_metadata,
    produce.ProduceRequest: answer_produce,
    fetch.FetchRequest: answer_fetch,
    list_offsets.ListOffsetsRequest: answer_list_offsets,
    init_producer_id.InitProducerIdRequest: answer_init_producer_id,
    create_topics.CreateTopicsRequest: answer_create_topics,
    delete_topics.DeleteTopicsRequest: answer_delete_topics,
    create_partitions.CreatePartitionsRequest: answer_create_partitions,
    describe_configs.DescribeConfigsRequest: answer_describe_configs,
    alter_configs.AlterConfigsRequest: answer_alter_configs,
    incremental_alter_configs.IncrementalAlterConfigsRequest: answer_incremental_alter_configs,
    describe_cluster.DescribeClusterRequest: answer_describe_cluster,
    describe_topic_partitions.DescribeTopicPartitionsRequest: answer_describe_topic_partitions,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: answer_offset_for_leader_epoch,
    delete_records.DeleteRecordsRequest: answer_delete_records,
    find_coordinator.FindCoordinatorRequest: answer_find_coordinator,
    join_group.JoinGroupRequest: answer_join_group,
    sync_group.SyncGroupRequest: answer_sync_group,
    heartbeat.HeartbeatRequest: answer_heartbeat,
    leave_group.LeaveGroupRequest: answer_leave_group,
    offset_commit.OffsetCommitRequest: answer_offset_commit,
    offset_fetch.OffsetFetchRequest: answer_offset_fetch,
    list_groups.ListGroupsRequest: answer_list_groups,
    describe_groups.DescribeGroupsRequest: answer_describe_groups,
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequest: answer_consumer_group_heartbeat,
    consumer_group_describe.ConsumerGroupDescribeRequest: answer_consumer_group_describe,
    delete_groups.DeleteGroupsRequest: answer_delete_groups,
    offset_delete.OffsetDeleteRequest: answer_offset_delete,
    describe_acls.DescribeAclsRequest: answer_describe_acls,
    create_acls.CreateAclsRequest: answer_create_acls,
    delete_acls.DeleteAclsRequest: answer_delete_acls,
    describe_log_dirs.DescribeLogDirsRequest: answer_describe_log_dirs,
    alter_replica_log_dirs.AlterReplicaLogDirsRequest: answer_alter_replica_log_dirs,
    elect_leaders.ElectLeadersRequest: answer_elect_leaders,
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: answer_alter_partition_reassignments,
    list_partition_reassignments.ListPartitionReassignmentsRequest: answer_list_partition_reassignments,
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest: answer_describe_user_scram_credentials,
    describe_quorum.DescribeQuorumRequest: answer_describe_quorum,
    update_features.UpdateFeaturesRequest: answer_update_features,
    describe_producers.DescribeProducersRequest: answer_describe_producers,
    list_config_resources.ListConfigResourcesRequest: answer_list_config_resources,
    add_partitions_to_txn.AddPartitionsToTxnRequest: answer_add_partitions_to_txn,
    add_offsets_to_txn.AddOffsetsToTxnRequest: answer_add_offsets_to_txn,
    end_txn.EndTxnRequest: answer_end_txn,
    write_txn_markers.WriteTxnMarkersRequest: answer_write_txn_markers,
    txn_offset_commit.TxnOffsetCommitRequest: answer_txn_offset_commit,
    describe_transactions.DescribeTransactionsRequest: answer_describe_transactions,
    list_transactions.ListTransactionsRequest: answer_list_transactions,
}
