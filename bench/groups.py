"""Consumer groups: what a commit costs, how long a rebalance takes, what a member weighs, how fast groups come back."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from bench.figures import ratio
from bench.floors import floor
from bench.machine import private_bytes, spent_by
from bench.membership import Member, find_coordinator, rebalance
from bench.node import SETTLE_SECONDS
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, Runs
from bench.subject import broker, partition_directory
from bench.wire import ask, connect, create_topic
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.offset_commits import NO_EXPIRE_TIMESTAMP, encode_commit_key, encode_commit_value
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import partition_metadata
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log
from trio_broker.testing.process import BrokerProcess

TOPIC = "events"

PARTITIONS = 16

GROUP_SETTINGS = {**PAGE_CACHE, "group.initial.rebalance.delay.ms": "200"}
"""Long enough that all members of a new group are in its first generation; no measurement has it in it."""

COMMITTERS = 16

COMMITS = 10_000
"""Per repeat: about two seconds."""

REBALANCE_MEMBERS = 50

HEARTBEAT_INTERVAL_MS = 3_000
"""The clients' default, within which every member learns that it must join again. What comes then is measured."""

WEIGHED_GROUPS = 100
WEIGHED_MEMBERS = 50
"""Of each weighed group; a member costs more in a group of one."""

STORED_COMMITS = 1_000_000
STORED_GROUPS = 1_000
FETCH_VERSION = 9

NOW_MS = 1_700_000_000_000


# ---- commits


def commits(options: Options) -> Outcome:
    """CPU per OffsetCommit of a member over the bare Trio pool echo's."""
    outcome = Outcome("commits")
    with ExitStack() as stack:
        process = stack.enter_context(broker(options.directory, GROUP_SETTINGS))
        create_topic(process.port, TOPIC, PARTITIONS)
        frames, response_bytes = commit_frames(stack, process)
        server = stack.enter_context(floor("echo", response_bytes))
        bare, ours = Runs(), Runs()
        for _ in range(options.repeats):
            requests = max(COMMITTERS, options.volume(COMMITS))
            bare.take(server.pid, server.port, frames, requests, response_bytes)
            ours.take(process.pid, process.port, frames, requests, response_bytes)
    table = outcome.table(
        f"OffsetCommit of one partition by {COMMITTERS} members of as many groups, page cache: "
        f"request {len(frames[0])} bytes, response {response_bytes} bytes",
        *("server", "CPU µs/request best", "median", "spread", "CPU ÷ bare", "requests/s best", "p50 ms", "p99 ms"),
    )
    for name, runs in (("bare echo", bare), ("broker", ours)):
        cpu, latencies = runs.cpu, runs.latencies()
        table.add(
            *(name, cpu.best, cpu.median, f"{cpu.spread:.0%}", ratio(cpu, bare.cpu)),
            *(runs.rate.best, latencies.p50_ms, latencies.p99_ms),
        )
    outcome.measures["commits"] = ratio(ours.cpu, bare.cpu)
    return outcome


def commit_frames(stack: ExitStack, process: BrokerProcess) -> tuple[list[bytearray], int]:
    """A commit for each of the members, whose groups are settled, and the size of the answer to it."""
    members = [
        Member(stack.enter_context(connect(process.port)), f"committers-{index}", TOPIC) for index in range(COMMITTERS)
    ]
    for member in members:
        find_coordinator(member.sock, member.group_id)
        member.ask_for_id()
        rebalance([member])
    frames = [member.commit_frame(index % PARTITIONS) for index, member in enumerate(members)]
    members[0].sock.sendall(frames[0])
    response = members[0].sock.recv(65536)
    assert len(response) == SIZE_PREFIX.size + SIZE_PREFIX.unpack_from(response)[0]
    return frames, len(response)


# ---- rebalances


def rebalances(options: Options) -> Outcome:
    """How long a large group takes once all its members know that they must join again."""
    outcome = Outcome("rebalances")
    table = outcome.table(
        f"A rebalance of {REBALANCE_MEMBERS} members, from the first JoinGroup to the last SyncGroup's answer",
        *("durability", "rebalances", "ms best", "median", "worst", "broker CPU ms, median"),
    )
    for durability in ("page-cache", "fsync"):
        found = timed_rebalances(options, durability)
        walls, cpus = sorted(each.wall_ms for each in found), sorted(each.cpu_ms for each in found)
        middle = len(found) // 2
        table.add(durability, len(found), walls[0], walls[middle], walls[-1], cpus[middle])
        outcome.measures[f"rebalance-{durability}"] = walls[middle]
    outcome.remarks.append(
        "Members learn of a rebalance by their next heartbeat, so in a real group this comes on top of at most one "
        f"heartbeat interval ({HEARTBEAT_INTERVAL_MS} ms by default)."
    )
    return outcome


@attrs.frozen
class Rebalanced:
    wall_ms: float
    cpu_ms: float


def timed_rebalances(options: Options, durability: str) -> list[Rebalanced]:
    """A group of many members rebalances again and again."""
    found = []
    with ExitStack() as stack:
        settings = {**GROUP_SETTINGS, "log.durability": durability}
        process = stack.enter_context(broker(options.directory, settings))
        create_topic(process.port, TOPIC, REBALANCE_MEMBERS)
        members = [Member(stack.enter_context(connect(process.port)), "large", TOPIC) for _ in range(REBALANCE_MEMBERS)]
        find_coordinator(members[0].sock, "large")
        for member in members:
            member.ask_for_id()
        rebalance(members)
        for _ in range(max(3, options.volume(4 * options.repeats))):
            with spent_by(process.pid) as spent:
                rebalance(members)
            found.append(Rebalanced(spent.wall * 1e3, spent.cpu * 1e3))
    return found


# ---- memory


def group_memory(options: Options) -> Outcome:
    """What a member adds to the broker's memory."""
    outcome = Outcome("group-memory")
    groups = options.volume(WEIGHED_GROUPS)
    with ExitStack() as stack:
        process = stack.enter_context(broker(options.directory, GROUP_SETTINGS))
        create_topic(process.port, TOPIC, WEIGHED_MEMBERS)
        socks = [stack.enter_context(connect(process.port)) for _ in range(WEIGHED_MEMBERS)]
        find_coordinator(socks[0], "any")
        settle(socks, "warm-up")
        time.sleep(SETTLE_SECONDS)
        before = private_bytes(process.pid)
        for index in range(groups):
            settle(socks, f"weighed-{index}")
        time.sleep(SETTLE_SECONDS)
        per_member = (private_bytes(process.pid) - before) / (groups * WEIGHED_MEMBERS) / 1000
    table = outcome.table("Memory of the group coordinator", "", "value", "unit")
    table.add(f"per member, {groups} groups of {WEIGHED_MEMBERS}, all that they keep included", per_member, "KB")
    outcome.measures["group-memory"] = per_member
    return outcome


def settle(socks: Sequence[socket.socket], group_id: str) -> None:
    """Bring a group of as many members as connections into a stable generation."""
    members = [Member(sock, group_id, TOPIC) for sock in socks]
    for member in members:
        member.ask_for_id()
    rebalance(members)


# ---- coming back


def reload(options: Options) -> Outcome:
    """How long a start takes until a million commits are there again, each in a batch of its own."""
    outcome = Outcome("reload")
    count = options.volume(STORED_COMMITS)
    with broker(options.directory, GROUP_SETTINGS) as process:
        with connect(process.port) as sock:
            find_coordinator(sock, "any")
        process.stop()
        size = store_commits(process, count)
        began = time.perf_counter()
        process.start()
        started = time.perf_counter() - began
        with spent_by(process.pid) as spent:
            wait_until_loaded(process, count)
        loaded = time.perf_counter() - began
        memory = private_bytes(process.pid)
    table = outcome.table(f"{count:,} commits of {STORED_GROUPS} groups, a batch each", "", "value", "unit")
    table.add("log to read", size / 1e6, "MB")
    table.add("start until it serves", started, "s")
    table.add("start until the last group can be asked", loaded, "s")
    table.add("CPU after it serves", spent.cpu, "s")
    table.add("private memory then", memory / 1e6, "MB")
    outcome.measures["reload"] = loaded
    return outcome


def store_commits(process: BrokerProcess, count: int) -> int:
    """Append commits to the logs of the broker, which does not run; return how many bytes they took."""
    from trio_broker.coordinator.runtime.coordinator_runtime import partition_for

    logs = stored_logs(process, CONSUMER_OFFSETS_TOPIC)
    for number in range(count):
        group_id = f"stored-{number % STORED_GROUPS}"
        key = encode_commit_key(group_id, TOPIC, number // STORED_GROUPS)
        value = encode_commit_value(number, 0, "", NOW_MS, NO_EXPIRE_TIMESTAMP, NO_UUID)
        batch = memoryview(bytearray(build_batch([NewRecord(NOW_MS, key, value)])))
        logs[partition_for(group_id, len(logs))].append(
            batch, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        )
    size = sum(log.size_bytes for log in logs)
    for log in logs:
        log.close()
    return size


def stored_logs(process: BrokerProcess, topic: str) -> list[Log]:
    """The logs of all partitions of a topic of the broker, which does not run and whose clock stands still."""
    disk = RealDisk()
    logs = []
    for index in range(len(list(process.data_directory.glob(f"{topic}-*")))):
        directory = partition_directory(process, topic, index)
        recovered = open_log(
            disk,
            directory,
            TopicPartition(topic, index),
            partition_metadata.read(disk, directory),
            LogConfig(),
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=NOW_MS,
        )
        logs.append(recovered.log)
    return logs


def wait_until_loaded(process: BrokerProcess, count: int) -> None:
    """Ask for every group until it is there."""
    last = count // STORED_GROUPS - 1
    with connect(process.port) as sock:
        for number in range(STORED_GROUPS):
            topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[last])
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=f"stored-{number}", topics=[topic])], require_stable=False
            )
            while True:
                [group] = ask(sock, request, FETCH_VERSION).groups
                if not group.error_code:
                    break
                time.sleep(0.01)
            assert group.topics[0].partitions[0].committed_offset == last * STORED_GROUPS + number
