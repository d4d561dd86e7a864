"""Bugs of replication, put into the brokers on purpose, to show that the simulation of clusters finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from trio_broker.cluster import alter_partition, cluster_control
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.partition_change_builder import PartitionChangeBuilder
from trio_broker.partition import fetch_operation, replica_fetcher
from trio_broker.partition.fetch_answers import Truncate
from trio_broker.partition.in_sync_replicas import PendingExpandIsr, PendingShrinkIsr
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.leader_appends import LeaderAppends
from trio_broker.partition.remote_replicas import NOT_AWAITED, RemoteReplicas
from trio_broker.partition.replica_fetcher import FollowedPartition, ReplicaFetcher
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.writer import PartitionWriter
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager


def followers_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteReplicas, "replicated_offset", lambda *_: NOT_AWAITED)


def a_shrink_counts_when_it_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingShrinkIsr, "maximal_isr", PendingShrinkIsr.wanted_isr)


def a_replica_joins_before_it_reaches_the_epoch(patch: pytest.MonkeyPatch) -> None:
    begin_epoch = RemoteReplicas.begin_epoch

    def begin(remote: RemoteReplicas, *arguments: Any, **named: Any) -> None:
        begin_epoch(remote, *arguments, **named)
        remote.epoch_start_offset = 0

    patch.setattr(RemoteReplicas, "begin_epoch", begin)


def a_replica_joins_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    wanted_expansion = RemoteReplicas.wanted_expansion

    def wanted(remote: RemoteReplicas, replica_id: int, high_watermark: int) -> PendingExpandIsr | None:
        return wanted_expansion(remote, replica_id, 0)

    a_replica_joins_before_it_reaches_the_epoch(patch)
    patch.setattr(RemoteReplicas, "wanted_expansion", wanted)


def a_replica_that_is_fenced_joins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteReplicas, "_may_join", lambda *_: True)
    patch.setattr(alter_partition, "reason_not_eligible", lambda *_: "")


def a_fetch_comes_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    """What a follower asks for says that it has synced what it has not."""
    appended = ReplicaFetcher._appended

    def not_to_be_synced(fetcher: ReplicaFetcher, state: Any, partition: Any, size: int, begun: Any) -> None:
        appended(fetcher, state, partition, size, begun)
        begun.appended.clear()

    patch.setattr(ReplicaFetcher, "_appended", not_to_be_synced)
    patch.setattr(replica_fetcher, "awaits_disk", lambda _: False)


def a_broker_that_has_lost_records_stays_in_sync(patch: pytest.MonkeyPatch) -> None:
    """It registers before its session has ended, and nobody takes it out."""

    def nobody_leaves(*_: Any, **__: Any) -> Any:
        return ()
        yield

    decide = cluster_control.decide_broker_registration
    patch.setattr(
        "trio_broker.cluster.controller.decide_broker_registration",
        lambda *arguments, **named: decide(*arguments, **{**named, "has_session": False}),
    )
    patch.setattr(cluster_control, "without_broker", nobody_leaves)


def eligibility_outlasts_commits(patch: pytest.MonkeyPatch) -> None:
    """Replicas that have left the ISR stay eligible although it is large enough to commit without them."""
    eligible = PartitionChangeBuilder._eligible_leader_replicas

    def for_ever(builder: PartitionChangeBuilder, replicas: tuple[int, ...], isr: tuple[int, ...]) -> tuple[int, ...]:
        candidates = {*builder.partition.eligible_leader_replicas, *builder.partition.isr}
        return tuple(sorted(candidates.intersection(replicas).difference(isr))) or eligible(builder, replicas, isr)

    patch.setattr(PartitionChangeBuilder, "_eligible_leader_replicas", for_ever)
    patch.setattr(PartitionChangeBuilder, "_may_commit", lambda *_: False)


def anybody_is_elected(patch: pytest.MonkeyPatch) -> None:
    """Who is eligible is forgotten, and then any replica leads that is alive."""

    def anybody(builder: PartitionChangeBuilder, replicas: tuple[int, ...], *_: Any) -> int:
        return next((each for each in replicas if builder._can_lead(each)), NO_LEADER)

    patch.setattr(PartitionChangeBuilder, "_eligible_leader_replicas", lambda *_: ())
    patch.setattr(PartitionChangeBuilder, "_unclean_leader", anybody)


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what is a repetition."""
    patch.setattr(Log, "_note_producers", lambda *_: [])


def an_old_leader_goes_on(patch: pytest.MonkeyPatch) -> None:
    make_follower = PartitionWriter.make_follower

    def unless_it_leads(writer: PartitionWriter, decided: LeaderAndIsr) -> None:
        if not writer.state.is_leader:
            make_follower(writer, decided)

    patch.setattr(PartitionWriter, "make_follower", unless_it_leads)


def all_is_visible_after_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaManager, "_first_high_watermark", lambda manager, opened, decided: opened.log_end_offset)


def nobody_waits_for_replicas(patch: pytest.MonkeyPatch) -> None:
    """With acks=all, what the leader has appended is acknowledged."""

    def at_once(appends: LeaderAppends, awaited: Sequence[Any], **_: Any) -> Any:
        return [ErrorCode.NONE] * len(awaited)
        yield

    patch.setattr(LeaderAppends, "replication_steps", at_once)


def a_follower_is_cut_at_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What is behind it may be committed all the same (KIP-101)."""
    follow, begin = ReplicaFetcher.follow, ReplicaFetcher._begin

    def follow_anew(fetcher: ReplicaFetcher, partitions: Mapping[Any, FollowedPartition]) -> None:
        follow(fetcher, partitions)
        for each in partitions:
            fetcher._states[each].lag = None

    def cut_first(fetcher: ReplicaFetcher, begun: Any, cuts: Any, each: Any, answer: Any) -> None:
        partition = each.partition
        if each.state.lag is None and partition.high_watermark < partition.log_end_offset:
            cuts.setdefault(partition.log.directory.parent, {})[each] = Truncate(partition.high_watermark)
            each.state.lag = 0
        else:
            begin(fetcher, begun, cuts, each, answer)

    patch.setattr(ReplicaFetcher, "follow", follow_anew)
    patch.setattr(ReplicaFetcher, "_begin", cut_first)


def logs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A leader does not tell a follower where their logs part ways."""
    patch.setattr(fetch_operation, "diverging_epoch", lambda *_: None)


def epochs_begin_unwritten(patch: pytest.MonkeyPatch) -> None:
    """The file of leader epochs does not say what the log is written in."""

    async def say_that_it_is_written(writer: PartitionWriter) -> None:
        epochs = writer.log.epochs
        if (unwritten := epochs.unwritten) is not None:
            epochs.note_written(unwritten)
        writer.needs_epoch_entry = False

    patch.setattr(PartitionWriter, "write_epochs", say_that_it_is_written)


def a_replica_is_made_anew_without_its_disk(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts without a directory does not wait for what is there."""
    patch.setattr(LogManager, "expect", lambda *_: None)
