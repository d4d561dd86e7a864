"""A broker process, groups of real clients in processes, a producer, and whatever a plan does to them all.

One run has one topic and one group of each kind of client. A sender fills the topic with numbered records from the
first moment to the last, an observer asks for every group's committed offsets all the time, members follow and commit.
When the plan is through, every group must catch up with the topic's end by itself. Then everybody leaves, the broker is
killed once more, and what it still knows is the last thing in the history.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.checking.chaos_plan import FIRST_PARTITIONS, Step
from tests.checking.checker import check
from tests.checking.history import Event, Op, Recorder, Violation, read_history
from tests.checking.member_forker import MemberForker
from tests.checking.recorded_members import HEARTBEAT_MS, SESSION_MS, RecordedMember
from tests.checking.sender import Sender, SenderKind
from tests.checking.transactional_loops import TransactionalLoop
from tests.waits import TimeLeft, within
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.group_offsets import fetch_offsets
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.testing.process import BrokerProcess

TOPIC = "chaos"

BROKER_SETTINGS = {
    "log.durability": "fsync",
    "num.partitions": str(FIRST_PARTITIONS),
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
}

CHAOS_SENDERS = {"sender": SenderKind()}

OBSERVE_EVERY_SECONDS = 0.3

ADMIN_SECONDS = 20.0
ASK_SECONDS = 2.0

CATCH_UP_SECONDS = 90.0
"""Long enough for a session to end, a rebalance to wait for someone who never comes, and a loaded machine."""

BROKER_ANSWERS = "the broker answers"
CATCHING_UP = "every group catches up"
MEMBERS_LIVE = "members live until they are killed"


class Observer:
    """Asks for the committed offsets of every group, over and over. ``offsets`` is what it heard last.

    With the broker's own client: librdkafka's administrator aborts the process when a connection ends at the wrong
    moment (``rd_kafka_enq_once_del_source_return: Assertion `eonce->refcnt > 0' failed``, 2.16.0), and kafka-python's
    leaves sockets open when it cannot connect.
    """

    def __init__(self, recorder: Recorder, servers: str, groups: Sequence[str], ask_seconds: float) -> None:
        self.recorder, self.groups, self.ask_seconds = recorder, groups, ask_seconds
        self.offsets: dict[str, dict[int, int]] = {group: {} for group in groups}
        self._ever: dict[str, set[int]] = {group: set() for group in groups}
        self._addresses = parse_addresses(servers)
        self._enough = threading.Event()
        self.thread = threading.Thread(target=self._run, name="observer")
        self.thread.start()

    def _run(self) -> None:
        while not self._enough.wait(OBSERVE_EVERY_SECONDS):
            self.look()

    def look(self) -> bool:
        """Ask for every group once; whether all the answers came."""
        with KafkaClient(ConnectionSettings(self._addresses, "observer"), Deadline(self.ask_seconds)) as client:
            return all(self._look(client, group) for group in self.groups)

    def _look(self, client: KafkaClient, group: str) -> bool:
        with self.recorder.doing(Op.FETCH_OFFSETS, group=group) as draft:
            try:
                answer = fetch_offsets(client, group)
            except ClientError as error:
                draft.failed(error)
                return False
            found = {place.partition: each.offset for place, each in answer.items()}
            # What was there once and is not there now is reported as nothing, so that a lost offset shows.
            self._ever[group] |= found.keys()
            draft.tell(offsets={partition: found.get(partition) for partition in self._ever[group]})
            self.offsets[group] = found
        return True

    def stop(self) -> None:
        """Look no more by itself; ``look`` still does."""
        self._enough.set()
        self.thread.join()


@attrs.frozen
class Report:
    """What came of a run."""

    seconds: float
    history: list[Event]
    violations: list[Violation]
    events: Counter[str]

    def __str__(self) -> str:
        figures = ", ".join(f"{count} {name}" for name, count in figures_of(self.history).items())
        events = ", ".join(f"{count} {op}" for op, count in self.events.items())
        return f"{self.events.total()} events ({events}) in {self.seconds:.0f} s: {figures}"


def figures_of(history: Sequence[Event]) -> dict[str, int]:
    """How much was there to check."""
    assigned = {(event.group, event.generation) for event in history if event.op is Op.ASSIGN}
    ops = Counter(event.op for event in history if event.is_ok)
    return {
        "generations seen": len(assigned),
        "assignments": ops[Op.ASSIGN],
        "revocations": ops[Op.REVOKE],
        "losses": ops[Op.LOST],
        "records sent": ops[Op.SEND],
        "records processed": sum(len(event.records) for event in history if event.op is Op.POLL),
        "commits acknowledged": ops[Op.COMMIT],
        "commits in doubt": sum(event.op is Op.COMMIT and not event.is_ok for event in history),
        "looks at offsets": ops[Op.FETCH_OFFSETS],
        "stalls": ops[Op.STALL],
    }


class ChaosRun:
    """Everything that lives during a run. ``broker`` makes a ``BrokerProcess``, or a cluster in its place."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[type[RecordedMember] | type[TransactionalLoop]],
        broker: Callable[..., Any] = BrokerProcess,
        *,
        settings: Mapping[str, str] = BROKER_SETTINGS,
        senders: Mapping[str, SenderKind] = CHAOS_SENDERS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self.directory = directory / "history"
        self.directory.mkdir()
        self.groups = [kind.name for kind in kinds]
        self.broker = broker(directory / "broker", overrides=settings).start()
        self.servers = self.broker.bootstrap_servers
        self.nemesis = Recorder(self.directory, "nemesis")
        self.admin = AdminClient({"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 200, "log_level": 0})
        within(self.admin.create_topics([NewTopic(TOPIC, FIRST_PARTITIONS, -1)])[TOPIC].result, ADMIN_SECONDS)
        self.nursery = MemberForker(self.directory)
        self.senders = [
            Sender(Recorder(self.directory, name), self.servers, TOPIC, FIRST_PARTITIONS, kind)
            for name, kind in senders.items()
        ]
        self.observer = Observer(Recorder(self.directory, "observer"), self.servers, self.groups, ask_seconds)
        self.living: dict[str, str] = {}
        """The group of everybody who was neither killed nor asked to leave."""
        self.leaving: list[str] = []
        self.violations: list[Violation] = []

    # ---- the plan

    def do(self, step: Step) -> None:
        """Let one thing happen."""
        with self.nemesis.doing(step.op, group=step.group) as draft:
            draft.tell(error=step.process)
            _DEEDS[step.op](self, step)

    def join(self, step: Step) -> None:
        self.living[step.process] = step.group
        self.nursery.start(step.process, step.group, step.group, self.servers, TOPIC)

    def leave(self, step: Step) -> None:
        del self.living[step.process]
        self.leaving.append(step.process)
        self.nursery.signal(step.process, signal.SIGTERM)

    def kill(self, step: Step) -> None:
        del self.living[step.process]
        self.nursery.signal(step.process, signal.SIGKILL)

    def pause(self, step: Step) -> None:
        self.nursery.signal(step.process, signal.SIGSTOP)

    def resume(self, step: Step) -> None:
        self.nursery.signal(step.process, signal.SIGCONT)

    def kill_broker(self, step: Step) -> None:
        self.broker.kill()
        self.broker.start()

    def restart_broker(self, step: Step) -> None:
        assert self.broker.stop() == 0
        self.broker.start()

    def grow(self, step: Step) -> None:
        count = self.senders[0].partitions + 1
        within(self.admin.create_partitions([NewPartitions(TOPIC, count)])[TOPIC].result, ADMIN_SECONDS)
        for sender in self.senders:
            sender.partitions = count

    # ---- the end

    def settle(self, seconds: float) -> None:
        """Wait until every group has committed all that was sent."""
        ends: Counter[int] = Counter()
        for sender in self.senders:
            sender.stop()
            ends |= sender.ends
        time_left = TimeLeft(seconds)
        behind = self.groups
        while behind and not time_left.is_over:
            behind = [group for group in self.groups if self.observer.offsets.get(group) != ends]
            time.sleep(OBSERVE_EVERY_SECONDS)
        for group in behind:
            text = f"{group} has committed {self.observer.offsets.get(group)}, and the topic ends at {dict(ends)}"
            self.violations.append(Violation(CATCHING_UP, text))

    def end(self) -> None:
        """Let everybody leave, and look at what is left after one more kill of the broker."""
        for process in self.living:
            self.nursery.signal(process, signal.SIGTERM)
        try:
            self.nursery.wait_until_ended(*self.living, *self.leaving)
        except TimeoutError as error:
            self.violations.append(Violation(MEMBERS_LIVE, str(error)))
        self.observer.stop()
        with self.nemesis.doing(Op.KILL_BROKER):
            self.broker.kill()
            self.broker.start()
        time_left = TimeLeft(ADMIN_SECONDS)
        while not (answers := self.observer.look()) and not time_left.is_over:
            time.sleep(OBSERVE_EVERY_SECONDS)
        if not answers:
            self.violations.append(Violation(BROKER_ANSWERS, "it does not, after its last start"))
        for process, code in self.nursery.ended.items():
            if code not in (0, -signal.SIGKILL):
                self.violations.append(Violation(MEMBERS_LIVE, f"{process}: {code}\n{self.nursery.log_of(process)}"))

    def close(self) -> None:
        self.nursery.close()
        for sender in self.senders:
            sender.stop()
        self.observer.stop()
        with suppress(ProcessLookupError):
            self.broker.kill()
        (self.directory / "broker.log").write_text("\n".join(self.broker.output))


_DEEDS: dict[Op, Callable[[ChaosRun, Step], None]] = {
    Op.JOIN: ChaosRun.join,
    Op.LEAVE: ChaosRun.leave,
    Op.KILL: ChaosRun.kill,
    Op.PAUSE: ChaosRun.pause,
    Op.RESUME: ChaosRun.resume,
    Op.GROW: ChaosRun.grow,
    Op.KILL_BROKER: ChaosRun.kill_broker,
    Op.RESTART_BROKER: ChaosRun.restart_broker,
}


def run_steps(
    directory: Path,
    steps: Sequence[Step],
    kinds: Sequence[type[RecordedMember]],
    *,
    broker: Callable[..., Any] = BrokerProcess,
    catch_up_seconds: float = CATCH_UP_SECONDS,
) -> Report:
    """Do what ``steps`` say to a group of each of ``kinds``, and check what came of it."""
    began = time.monotonic()
    run = ChaosRun(directory, kinds, broker)
    try:
        for step in steps:
            time.sleep(step.after)
            run.do(step)
        run.settle(catch_up_seconds)
        run.end()
    finally:
        run.close()
    history = read_history(run.directory)
    violations = [*run.violations, *check(history, kinds)]
    return Report(time.monotonic() - began, history, violations, Counter(str(step.op) for step in steps if step.counts))
