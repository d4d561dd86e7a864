"""A broker process, loops of real clients that read, process and write in transactions, and the thread that kills them.

In each place lives one process of a loop. It is killed and another takes its place; or it is stopped for longer than
its session and its transaction last, another takes its place, and it wakes up as a zombie. The broker is killed as
well. When the plan is through, everything must be moved, once.

The observer reads the committed records of the output all the time, from the beginning again after each end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.checking.chaos_plan import Step
from tests.checking.chaos_run import ADMIN_SECONDS, BROKER_SETTINGS, CATCH_UP_SECONDS, TOPIC, ChaosRun
from tests.checking.history import Event, Op, Record, Recorder, Violation, read_history
from tests.checking.log_content import Log, read_log
from tests.checking.recorded_members import SESSION_MS
from tests.checking.sender import SenderKind
from tests.checking.transactional_loops import (
    LOOPS,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    PLACES,
    TRANSACTION_MS,
    record_of,
)
from tests.checking.transactions import FinalState, check_transactions
from tests.waits import within
from trio_broker.testing.process import BrokerProcess

WEIGHTS = {Op.KILL: 60, Op.PAUSE: 15, Op.KILL_BROKER: 25}

BETWEEN_SECONDS = (0.1, 1.5)
"""Often shorter than a start of a client takes, so that some are killed before their first transaction."""

REPLACED_SECONDS = (0.0, 0.5)

PAUSE_SECONDS = (0.3, 1.5 * max(SESSION_MS, TRANSACTION_MS) / 1000)
"""Some sleep within their transaction, most beyond their session and some beyond both."""

SENDERS = {"sender": SenderKind(bursts=1)}

SETTINGS = BROKER_SETTINGS | {"transaction.state.log.num.partitions": "4"}


def transaction_plan(seed: int, kills: int) -> list[Step]:
    """Random steps with ``kills`` kills of processes and of the broker, and what belongs to them."""
    random, now, count, killed = Random(seed), 0.0, 0, 0
    planned: list[tuple[float, Op, str, str]] = []
    places: dict[tuple[str, int], tuple[str, float]] = {}

    def join(kind: str, place: int, at: float) -> None:
        nonlocal count
        count += 1
        process = f"{kind}-{place}-{count}"
        places[kind, place] = process, at
        planned.append((at, Op.JOIN, kind, process))

    for loop in LOOPS:
        for place in range(PLACES):
            join(loop.name, place, now)
    while killed < kills:
        now += random.uniform(*BETWEEN_SECONDS)
        [op] = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        kind, place = random.choice(sorted(places))
        process, started = places[kind, place]
        now = max(now, started)
        replaced = now + random.uniform(*REPLACED_SECONDS)
        if op is Op.KILL_BROKER:
            planned.append((now, op, "", ""))
        else:
            planned.append((now, op, kind, process))
            join(kind, place, replaced)
        if op is Op.PAUSE:
            planned.append((now + random.uniform(*PAUSE_SECONDS), Op.RESUME, kind, process))
        killed += op is not Op.PAUSE
    planned.sort(key=lambda each: each[0])
    before = [0.0, *(at for at, *_ in planned)]
    return [
        Step(at - last, op, group, process, counts=op in (Op.KILL, Op.KILL_BROKER))
        for last, (at, op, group, process) in zip(before, planned, strict=False)
    ]


def read_committed(servers: str, recorder: Recorder, enough: threading.Event) -> Log:
    """Read what is committed of the output, once from the beginning to the end or until ``enough``, and tell of it."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "reader of the output",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    log: dict[int, list[Record]] = {partition: [] for partition in range(OUTPUT_PARTITIONS)}
    left = set(log)
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(OUTPUT_TOPIC, partition, OFFSET_BEGINNING) for partition in log])
        while left and not enough.is_set():
            found = []
            with recorder.doing(Op.READ_COMMITTED) as draft:
                for message in consumer.consume(1000, 1.0):
                    if (error := message.error()) is None:
                        found.append(record_of(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left -= {message.partition()}
                draft.tell(records=[(each.partition, each.offset, each.value) for each in found])
            for record in found:
                log[record.partition].append(record)
    return log


@attrs.frozen
class TransactionReport:
    """What came of a run."""

    history: list[Event]
    violations: list[Violation]
    kills: Counter[str]

    def __str__(self) -> str:
        transactions = Counter(str(event.outcome) for event in self.history if event.op is Op.TRANSACTION)
        moved = sum(len(event.inputs) for event in self.history if event.op is Op.TRANSACTION and event.is_ok)
        inits = sum(event.op is Op.INIT_PRODUCER_ID and event.is_ok for event in self.history)
        read = sum(len(event.records) for event in self.history if event.op is Op.READ_COMMITTED)
        return (
            f"{self.kills.total()} kills {dict(self.kills)}; transactions {dict(transactions)}, which moved {moved}"
            f" records and more; {inits} producers; {read} records read"
        )


def run_transactions(
    directory: Path,
    steps: Sequence[Step],
    settings: Mapping[str, str],
    broker: Callable[..., Any] = BrokerProcess,
) -> TransactionReport:
    """Do what ``steps`` say to loops of each kind, and check what came of it."""
    run = ChaosRun(directory, LOOPS, broker, settings={**SETTINGS, **settings}, senders=SENDERS)
    enough = threading.Event()
    reader: threading.Thread | None = None
    try:
        within(
            run.admin.create_topics([NewTopic(OUTPUT_TOPIC, OUTPUT_PARTITIONS, -1)])[OUTPUT_TOPIC].result, ADMIN_SECONDS
        )
        recorder = Recorder(run.directory, "reader")

        def read_over_and_over() -> None:
            while not enough.wait(1.0):
                read_committed(run.servers, recorder, enough)

        reader = threading.Thread(target=read_over_and_over, name="reader")
        reader.start()
        for step in steps:
            enough.wait(step.after)
            run.do(step)
        run.settle(CATCH_UP_SECONDS)
        enough.set()
        reader.join()
        run.end()
        output = read_committed(run.servers, Recorder(run.directory, "last-reader"), threading.Event())
        final = FinalState(output, read_log(run.servers, TOPIC), run.observer.offsets)
    finally:
        enough.set()
        if reader is not None:
            reader.join()
        run.close()
    history = read_history(run.directory)
    violations = [*run.violations, *check_transactions(history, final)]
    kills = Counter(str(step.op) for step in steps if step.counts)
    return TransactionReport(history, violations, kills)
