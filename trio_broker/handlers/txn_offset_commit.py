"""TxnOffsetCommit: commit a group's offsets as part of a transaction.

The group's partition of ``__consumer_offsets`` must be part of the transaction: AddOffsetsToTxn has added it, or from
version 5 on this request does. The fields are those of OffsetCommit, and so are the checks of topics and members.

Source: Kafka's KafkaApis.handleTxnOffsetCommitRequest; KIP-98, KIP-447, KIP-890, KIP-1319.
"""

from __future__ import annotations

from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_wire.schema import Request
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns
from trio_broker.coordinator.offsets.requests import TransactionalCommit
from trio_broker.coordinator.request_parts import answered_in_turn, parts_of
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.handlers.offset_commit import commit_existing
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    ForEach,
    for_group,
    for_transactional_id,
    its_name_or_id,
)
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.handlers.support.transactions import code_in

R = TypeVar("R")

ABORTABLE_SINCE_VERSION: Final = 4
ADDS_GROUP_SINCE_VERSION: Final = 5
BY_ID_SINCE_VERSION: Final = 6


def error_response(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error.code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@attrs.frozen
class TransactionalCaller:
    """Commits for ``producer``, in the transaction of ``transactional_id``."""

    context: Context
    transactional_id: str
    producer: ProducerIdAndEpoch

    @property
    def services(self) -> BrokerServices:
        return self.context.services

    def call_group(self, group_id: str, request: Request[R]) -> Steps[R]:
        """Let the coordinator answer a part of the commit.

        Raises:
            KafkaError: those of ``GroupCoordinator.call``, or the group is not part of the transaction.
        """
        assert isinstance(request, OffsetCommitRequest), f"not a commit: {request}"
        self.services.groups.require_room(request)
        if (parts := parts_of(request)) is None:
            response = yield from self._commit(request)
        else:
            # Each asks anew whether it may be written: the transaction may end between two of them.
            response = yield from answered_in_turn(parts, self._commit)
        return response  # type: ignore[return-value]  # that of a commit, which is what is asked

    def _commit(self, commit: OffsetCommitRequest) -> Steps[OffsetCommitResponse]:
        partition = self.services.groups.own_partition_of(commit.group_id)
        # Whether the log has commits of the transaction already.
        if not partition.producers.has_open_transaction(self.producer.producer_id, self.producer.epoch):
            context = self.context
            verification = yield from self.services.transaction_verification.verification_steps(
                self.transactional_id,
                self.producer,
                [partition],
                adds=context.version >= ADDS_GROUP_SINCE_VERSION,
                context=context.request_context,
                release_handler=context.release_handler,
            )
            # Nothing comes between this and the append: the transaction may have ended meanwhile, and no marker would
            # ever follow.
            verification.require_added(partition)
        return (yield from self.context.call_group(commit.group_id, TransactionalCommit(commit, self.producer)))


@handles(
    TxnOffsetCommitRequest,
    error_response=error_response,
    requires=[
        for_transactional_id(WRITE_TRANSACTIONAL_ID),
        for_group(READ_GROUP),
        ForEach([READ_TOPIC], "topics", "topics", its_name_or_id),
    ],
)
def txn_offset_commit(request: TxnOffsetCommitRequest, context: Context) -> Steps[TxnOffsetCommitResponse]:
    """Commit the offsets of the partitions that exist; every other partition gets its error."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    caller = TransactionalCaller(context, request.transactional_id, producer)
    commit = yield from plain_commit(request)
    response = yield from commit_existing(commit, caller, by_id=context.version >= BY_ID_SINCE_VERSION)
    return (yield from transactional_response(response, context.version))


def plain_commit(request: TxnOffsetCommitRequest) -> Steps[OffsetCommitRequest]:
    """The same commit outside of a transaction."""
    budget, topics = YieldBudget(), []
    for topic in request.topics:
        partitions = (
            OffsetCommitRequestPartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                committed_metadata=each.committed_metadata,
            )
            for each in topic.partitions
        )
        listed_partitions = yield from list_in_turns(partitions)
        topics.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=listed_partitions))
        if budget.is_spent:
            yield budget.renewed
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def transactional_response(response: OffsetCommitResponse, version: int) -> Steps[TxnOffsetCommitResponse]:
    """The same answer to the commit in a transaction."""
    budget, topics = YieldBudget(), []
    for topic in response.topics:
        partitions = (
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=commit_code(version, ErrorCode(each.error_code)),
            )
            for each in topic.partitions
        )
        listed_partitions = yield from list_in_turns(partitions)
        topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=listed_partitions)
        )
        if budget.is_spent:
            yield budget.renewed
    return TxnOffsetCommitResponse(topics=topics)


def commit_code(version: int, code: ErrorCode) -> ErrorCode:
    """``code`` as a producer that commits offsets knows it in this version."""
    # The coordinator of the transaction was not reached. A producer takes that code for its end, and asks again after
    # this one (GroupCoordinatorService.commitTransactionalOffsets).
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code_in(version, code, abortable_since=ABORTABLE_SINCE_VERSION)
