"""A real producer that tells of everything it sends."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

import attrs
import confluent_kafka

from tests.checking.history import Draft, Op, Outcome, Recorder
from tests.waits import MOST_TIMES, flushed

SEND_EVERY_SECONDS = 0.05
FLUSH_SECONDS = 60.0

SIZE_STEP = 7919
"""A prime number, so that neighbours differ in size."""


@attrs.frozen
class SenderKind:
    """How a sender sends.

    Its values are ``first`` and every ``step``-th number after it, so that no two senders have a value in common.
    ``burst`` records to one partition are one event of the history, which is ``ok`` when all are acknowledged; every
    ``SEND_EVERY_SECONDS`` there are ``bursts``. A value has at most ``most_bytes``, blanks after the number included.
    """

    idempotent: bool = True
    first: int = 0
    step: int = 1
    burst: int = 1
    bursts: int = 4
    most_bytes: int = 0


@attrs.define
class Burst:
    """The records of one event, until the last of them is acknowledged or refused."""

    draft: Draft
    going_on: ExitStack
    left: int
    records: list[tuple[int, int, int]] = attrs.field(factory=list)

    def acknowledged(self, partition: int, offset: int, value: int) -> None:
        self.records.append((partition, offset, value))
        self._ended_one()

    def failed(self, error: object, outcome: Outcome = Outcome.INFO) -> None:
        self.draft.failed(error, outcome)
        self._ended_one()

    def _ended_one(self) -> None:
        self.left -= 1
        if not self.left:
            if self.draft.outcome is Outcome.OK:
                self.draft.tell(records=self.records)
            self.going_on.close()


class Sender:
    """Sends numbered records to all partitions in turn, acks=all, and notes where the acknowledged ones are."""

    def __init__(self, recorder: Recorder, servers: str, topic: str, partitions: int, kind: SenderKind) -> None:
        self.recorder, self.topic, self.kind = recorder, topic, kind
        self.partitions = partitions
        self.ends: Counter[int] = Counter()
        """The offset after the last acknowledged record, by partition."""
        self._values = itertools.count(kind.first, kind.step)
        self._turn = 0
        self._enough = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "client.id": recorder.process,
                "enable.idempotence": kind.idempotent,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": int(FLUSH_SECONDS * MOST_TIMES * 1000),
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self.thread = threading.Thread(target=self._run, name="sender")
        self.thread.start()

    def _run(self) -> None:
        while not self._enough.wait(SEND_EVERY_SECONDS):
            for _ in range(self.kind.bursts):
                self._send()
            self._producer.poll(0)
        flushed(self._producer, FLUSH_SECONDS)

    def _send(self) -> None:
        partition = self._turn % self.partitions
        self._turn += 1
        values = list(itertools.islice(self._values, self.kind.burst))
        going_on = ExitStack()
        records = [(partition, -1, value) for value in values]
        draft = going_on.enter_context(self.recorder.doing(Op.SEND, records=records))
        burst = Burst(draft, going_on, len(values))
        for value in values:
            self._send_one(burst, partition, value)

    def _send_one(self, burst: Burst, partition: int, value: int) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.ends[partition] = max(self.ends[partition], message.offset() + 1)
                burst.acknowledged(partition, message.offset(), value)
            else:
                burst.failed(error)

        data = (b"%d" % value).ljust(value * SIZE_STEP % (self.kind.most_bytes + 1))
        try:
            self._producer.produce(self.topic, data, partition=partition, on_delivery=delivered)
        except confluent_kafka.KafkaException as error:
            # It has not heard of the newest partition yet. Others of the burst may have been sent.
            burst.failed(error, Outcome.FAIL if self.kind.burst == 1 else Outcome.INFO)

    def stop(self) -> None:
        self._enough.set()
        self.thread.join()
