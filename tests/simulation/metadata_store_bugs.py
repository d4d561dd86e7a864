"""Bugs of the metadata store in etcd, put into it on purpose, to show that the simulation finds them.

Each leaves out one defence against what etcd does, or trusts what etcd does not promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from trio_broker.cluster.etcd import etcd_metadata_store, log_tail
from trio_broker.cluster.etcd.errors import EtcdError, EtcdRefused, EtcdUnavailable, EtcdUnknown
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import ClusterState, CurrentSnapshot, EndOfLog, Holder, birth_of, state_operations
from trio_broker.cluster.etcd.log_tail import EtcdTail
from trio_broker.cluster.etcd.messages import Compare, RequestOp, TxnResponse, created_at, modified_at
from trio_broker.cluster.etcd.snapshots import SnapshotStep
from trio_broker.cluster.etcd.transactions import RETRY_SECONDS, EtcdTransactions
from trio_broker.cluster.metadata_store import AppendUnknown, Claim, CommittedBatch, PreparedBatch


def an_append_compares_the_end_alone(patch: pytest.MonkeyPatch) -> None:
    """A controller that was replaced, and has read what its successor appended, goes on."""

    def conditions(store: EtcdMetadataStore, claim: Claim, end: EndOfLog) -> Sequence[Compare]:
        return [store.transactions.in_own_cluster, modified_at(store.transactions.layout.end, end.mod_revision)]

    patch.setattr(EtcdMetadataStore, "append_conditions", conditions)
    # What has been read tells a controller that it was replaced; but it may not have read that yet.
    patch.setattr(etcd_metadata_store, "is_held", lambda claim, state: True)


def an_append_compares_that_its_place_is_free(patch: pytest.MonkeyPatch) -> None:
    """A place is free again when a snapshot has taken what was there."""

    def conditions(store: EtcdMetadataStore, claim: Claim, end: EndOfLog) -> Sequence[Compare]:
        layout = store.transactions.layout
        return [created_at(layout.controller, birth_of(claim)), created_at(layout.batch(end.offset), 0)]

    patch.setattr(EtcdMetadataStore, "append_conditions", conditions)


def an_unknown_append_is_repeated_behind_the_end(patch: pytest.MonkeyPatch) -> None:
    append = EtcdMetadataStore.append

    async def append_again(store: EtcdMetadataStore, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        try:
            return await append(store, batch, claim=claim, expected_end=expected_end)
        except AppendUnknown:
            return await append(store, batch, claim=claim, expected_end=await store.end_offset())

    patch.setattr(EtcdMetadataStore, "append", append_again)
    patch.setattr("trio_broker.cluster.etcd.transactions.ANSWER_SECONDS", 0.0)


def what_is_unknown_counts_as_not_done(patch: pytest.MonkeyPatch) -> None:
    settled = EtcdTransactions.settled

    async def settled_or_not(transactions: EtcdTransactions, *arguments: Any) -> TxnResponse:
        try:
            return await settled(transactions, *arguments)
        except EtcdUnknown as error:
            raise EtcdUnavailable(str(error)) from error

    patch.setattr(EtcdTransactions, "settled", settled_or_not)
    patch.setattr("trio_broker.cluster.etcd.transactions.ANSWER_SECONDS", 0.0)


def a_refusal_counts_for_the_tries_before_it(patch: pytest.MonkeyPatch) -> None:
    async def settled(
        transactions: EtcdTransactions,
        compare: Sequence[Compare],
        success: Sequence[RequestOp],
        failure: Sequence[RequestOp] = (),
    ) -> TxnResponse:
        while True:
            try:
                return await transactions.etcd.txn(compare, success, failure)
            except EtcdRefused:
                raise
            except EtcdError:
                await trio.sleep(RETRY_SECONDS)

    patch.setattr(EtcdTransactions, "settled", settled)


def a_failed_comparison_counts_as_not_done(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks for bytes of one's own at their place."""
    patch.setattr(etcd_metadata_store, "state_operations", lambda layout, more=None: state_operations(layout))


def a_claim_trusts_what_it_has_read(patch: pytest.MonkeyPatch) -> None:
    """It may be stale."""

    def conditions(store: EtcdMetadataStore, state: ClusterState) -> Sequence[Compare]:
        return [created_at(store.transactions.layout.controller, 0)]

    patch.setattr(EtcdMetadataStore, "claim_conditions", conditions)


def a_claim_begins_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(etcd_metadata_store, "Holder", lambda node_id, epoch, *of_process: Holder(node_id, 5, *of_process))


def what_the_watch_does_not_report_is_not_read(patch: pytest.MonkeyPatch) -> None:
    for module in (etcd_metadata_store, log_tail):
        patch.setattr(module, "IDLE_READ_SECONDS", math.inf)


def the_log_is_deleted_before_the_snapshot_is_named(patch: pytest.MonkeyPatch) -> None:
    make = SnapshotStep.make

    async def make_in_two(step: SnapshotStep, snapshot: CurrentSnapshot, operations: Sequence[RequestOp]) -> None:
        if deletions := [each for each in operations if each.delete_range is not None]:
            await make(step, snapshot, deletions)
        await make(step, snapshot, [each for each in operations if each.put is not None])

    patch.setattr(SnapshotStep, "make", make_in_two)


def a_late_step_of_a_snapshot_undoes_a_later_one(patch: pytest.MonkeyPatch) -> None:
    def conditions(step: SnapshotStep) -> Sequence[Compare]:
        return [created_at(step.transactions.layout.controller, birth_of(step.claim))]

    patch.setattr(SnapshotStep, "conditions", property(conditions))


def a_tail_begins_a_page_again(patch: pytest.MonkeyPatch) -> None:
    following = EtcdTail.__anext__

    async def following_twice(tail: EtcdTail) -> CommittedBatch:
        batch = await following(tail)
        if not tail._read and tail._next_offset % 7 == 0:
            tail._next_offset = batch.base_offset
        return batch

    patch.setattr(EtcdTail, "__anext__", following_twice)
