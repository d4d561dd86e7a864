"""A broker process under the load of real clients, while its threads and its queue are resized, and what came of it.

Two producers fill a topic, one idempotent and one not, both with acks=all; two members of each kind of consumer group
follow it; pipelined connections fill another topic and look at every answer. A resize must disturb none of them: each
send is acknowledged, each connection that was there before the first resize is there after the last one, each answer
comes in its turn. In the end both logs hold what was acknowledged, once and in order, and every group has had all.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka.admin import NewTopic

from tests.checking.chaos_plan import Step
from tests.checking.chaos_run import (
    ADMIN_SECONDS,
    BROKER_SETTINGS,
    CATCH_UP_SECONDS,
    OBSERVE_EVERY_SECONDS,
    TOPIC,
    ChaosRun,
    figures_of,
)
from tests.checking.checker import check
from tests.checking.history import Event, Op, Violation, read_history
from tests.checking.log_content import check_log, read_log
from tests.checking.pipelined_requests import PipelinedLoad
from tests.checking.recorded_members import ConfluentConsumer, ConfluentCooperative, ConfluentRange, RecordedMember
from tests.checking.sender import SenderKind
from tests.checking.thread_tuner import SECONDS, ThreadTuner
from tests.waits import TimeLeft, scaled, within
from trio_broker.testing.process import BrokerProcess

KINDS: tuple[type[RecordedMember], ...] = (ConfluentRange, ConfluentCooperative, ConfluentConsumer)
MEMBERS = 2

SENDERS = {
    "idempotent": SenderKind(idempotent=True, first=0, step=2, burst=10, bursts=1, most_bytes=2000),
    "acks-all": SenderKind(idempotent=False, first=1, step=2, burst=10, bursts=1, most_bytes=2000),
}

SETTINGS = BROKER_SETTINGS | {
    # Connections without work, such as the first one of each client, must not be closed by anything but a resize.
    "connections.max.idle.ms": "86400000",
    # So that segments roll under the load, and the cleaner has work for its threads.
    "internal.segment.bytes": "300000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
}

PIPELINED_TOPIC = "pipelined"
PIPELINES = 6

JOINS = {"JoinGroup", "ConsumerGroupHeartbeat"}

LOOK_SECONDS = 60.0
"""How long a look at the offsets may take: nothing restarts here, and a slow machine is no violation."""

EVERY_SEND_IS_ACKNOWLEDGED = "every send is acknowledged"
EVERY_LOOK_IS_ANSWERED = "every look at offsets is answered"
ANSWERS_IN_TURN = "answers come in their turn and are right"
NO_CONNECTION_IS_DROPPED = "no connection is dropped"


@attrs.frozen
class ResizeReport:
    """What came of a run."""

    seconds: float
    changes: Counter[str]
    answered: Counter[str]
    pipelined_records: int
    connections: int
    history: Sequence[Event]
    violations: Sequence[Violation]

    def __str__(self) -> str:
        figures = {
            "resizes": self.changes.total(),
            **self.changes,
            "pipelined requests answered": self.answered.total(),
            **self.answered,
            "pipelined records": self.pipelined_records,
            "connections kept": self.connections,
            **figures_of(self.history),
            "records sent": sum(len(event.records) for event in self.history if event.op is Op.SEND and event.is_ok),
        }
        return f"{self.seconds:.0f} s: " + ", ".join(f"{count} {name}" for name, count in figures.items())


def run_resizes(
    directory: Path, seed: int, seconds: float, *, broker: Callable[..., BrokerProcess] = BrokerProcess
) -> ResizeReport:
    """Resize for ``seconds`` what can be resized, or until a pipeline has failed, and check everything."""
    began = time.monotonic()
    run = ChaosRun(directory, KINDS, broker, settings=SETTINGS, senders=SENDERS, ask_seconds=LOOK_SECONDS)
    try:
        # The pipelines' records have a time long ago, and are not to be retired for it.
        wanted = NewTopic(PIPELINED_TOPIC, PIPELINES, 1, config={"retention.ms": "-1"})
        within(run.admin.create_topics([wanted])[PIPELINED_TOPIC].result, ADMIN_SECONDS)
        for number in range(MEMBERS):
            for kind in KINDS:
                run.do(Step(0, Op.JOIN, kind.name, f"{kind.name}-{number}"))
            # A member of KIP-848 that has its first assignment and is asked at once to give up a part of it was seen to
            # keep that for 0.4 s beside its next owner. Chaos runs have joins at any time; this one is about resizes.
            wait_until_all_have_committed(run)
            wait_until_joined(run.broker, {f"{kind.name}-{each}" for kind in KINDS for each in range(number + 1)})
        with PipelinedLoad(run.servers, PIPELINED_TOPIC, PIPELINES, seed) as load:
            before = open_connections(run.broker)
            with ThreadTuner(run.broker, seed) as tuner:
                load.failed.wait(seconds)
            after = open_connections(run.broker)
        run.settle(CATCH_UP_SECONDS)
        log, pipelined_log = read_log(run.servers, TOPIC), read_log(run.servers, PIPELINED_TOPIC)
        run.end()
    finally:
        run.close()
    history = read_history(run.directory)
    violations = [
        *run.violations,
        *check(history, KINDS),
        *check_log(history, log),
        *failed_events(history),
        *(Violation(ANSWERS_IN_TURN, failure) for failure in load.failures),
        *(Violation(NO_CONNECTION_IS_DROPPED, f"one of {before[each]}") for each in before.keys() - after.keys()),
    ]
    if not load.failures:
        violations += check_log(load.sent(), pipelined_log)
    return ResizeReport(
        time.monotonic() - began,
        tuner.changes,
        load.answered,
        sum(map(len, pipelined_log.values())),
        len(before),
        history,
        violations,
    )


def wait_until_all_have_committed(run: ChaosRun) -> None:
    """Return when every group has committed in all partitions."""
    time_left = TimeLeft(CATCH_UP_SECONDS)
    partitions = run.senders[0].partitions
    while any(len(offsets) < partitions for offsets in run.observer.offsets.values()):
        assert not time_left.is_over, f"not every group has committed: {run.observer.offsets}"
        time.sleep(OBSERVE_EVERY_SECONDS)


def wait_until_joined(broker: BrokerProcess, members: Set[str]) -> None:
    """Return when all ``members`` are connected to their coordinator."""
    time_left = TimeLeft(CATCH_UP_SECONDS)
    while absent := members - {each["client_id"] for each in connections(broker) if is_of_member(each)}:
        assert not time_left.is_over, f"not every member has joined: {absent}"
        time.sleep(OBSERVE_EVERY_SECONDS)


def open_connections(broker: BrokerProcess) -> Mapping[int, str]:
    """The client ids of the connections that are to stay, by the broker's number of each.

    Not those of members with their coordinator: librdkafka closes them when a heartbeat takes longer than the session,
    with KIP-848 longer than the pause between two, which a slow machine brings about. Nor those of the observer, which
    opens one for each look.
    """
    return {
        each["connection_id"]: each["client_id"]
        for each in connections(broker)
        if each["client_id"] != "observer" and not is_of_member(each)
    }


def is_of_member(connection: Mapping[str, Any]) -> bool:
    """Whether a member has joined a group over it."""
    return not JOINS.isdisjoint(api["api"] for api in connection["apis"])


def connections(broker: BrokerProcess) -> list[Mapping[str, Any]]:
    address = f"{broker.admin_url}api/v1/brokers/1/connections?limit=1000"
    with urllib.request.urlopen(address, timeout=scaled(SECONDS)) as response:
        found: list[Mapping[str, Any]] = json.load(response)["items"]
    return found


def failed_events(history: Sequence[Event]) -> list[Violation]:
    """What a broker that only resizes gives no reason to fail."""
    promises = {Op.SEND: EVERY_SEND_IS_ACKNOWLEDGED, Op.FETCH_OFFSETS: EVERY_LOOK_IS_ANSWERED}
    return [
        Violation(promises[event.op], event.error or "it never ended", (event,))
        for event in history
        if event.op in promises and not event.is_ok
    ]
