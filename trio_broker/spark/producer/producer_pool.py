"""Idle producers of this process, for the next task.

Spark keeps its Python workers, and a stream runs tasks by the minute. A broker remembers every producer id that wrote
to a partition for a day, so one id for each task would fill its memory; a new producer would also have to connect and
fetch metadata first. Spark's own Kafka sink keeps its producers for the same reasons.

Source: InternalKafkaProducerPool of Spark's connector.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.settings import ProducerSettings

IDLE_SECONDS: Final = 300.0
"""A producer that was idle for longer is closed and not used: brokers close connections that were idle for ten
minutes."""

MOST_IDLE: Final = 4
"""The number of producers kept; a worker runs one task at a time, and seldom more than a few kinds of jobs."""


@attrs.frozen
class _Idle:
    producer: BatchProducer
    since: float


@attrs.define
class ProducerPool:
    """Safe for several threads. ``now`` is in seconds."""

    now: Callable[[], float] = time.monotonic
    _idle: list[_Idle] = attrs.field(factory=list)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def acquire(self, settings: ProducerSettings) -> BatchProducer:
        """Return an idle producer with these settings, or a new one."""
        with self._lock:
            self._close_old()
            for each in self._idle:
                if each.producer.settings == settings:
                    self._idle.remove(each)
                    return each.producer
        return BatchProducer(settings)

    def release(self, producer: BatchProducer) -> None:
        """Keep ``producer`` for the next task, unless an error ended it."""
        with self._lock:
            if producer.is_usable:
                self._idle.append(_Idle(producer, self.now()))
            else:
                producer.close()
            self._close_old()

    def close(self) -> None:
        """Close every idle producer."""
        with self._lock:
            for each in self._idle:
                each.producer.close()
            self._idle.clear()

    def _close_old(self) -> None:
        kept = [each for each in self._idle if self.now() - each.since < IDLE_SECONDS][-MOST_IDLE:]
        for each in self._idle:
            if each not in kept:
                each.producer.close()
        self._idle = kept


PRODUCERS: Final = ProducerPool()
"""The pool of this process; empty in every worker when it starts, since the process that forks workers never writes."""
