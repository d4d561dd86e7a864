"""A coordinator that is none of the broker's: names that are leased for a while. It shows what a machine needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.machine import Machine
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, CoordinatorResult, Now


@attrs.frozen
class Lease:
    """The record: who has ``name``, and until when. Nobody has it without a ``holder``."""

    name: str
    holder: str | None
    expires_ms: int = 0


@attrs.frozen
class Acquire:
    """Answered with the holder: at once if the name is free, or when it has become free with ``waits``."""

    name: str
    holder: str
    seconds: int
    waits: bool = False


@attrs.frozen
class ReleaseAll:
    """Answered with the number of names that a holder had."""

    holder: str


@attrs.define
class LeaseMachine(Machine[Lease]):
    """Leases by name, and requests that wait for one."""

    leases: dict[str, Lease] = attrs.Factory(dict)
    deadlines: dict[str, float] = attrs.Factory(dict)
    waiting: dict[str, list[CoordinatorEvent[Acquire]]] = attrs.Factory(dict)
    observed: list[Lease] = attrs.Factory(list)

    def decide(self, event: CoordinatorEvent[Any]) -> CoordinatorResult[Lease] | None:
        request = event.request
        if isinstance(request, ReleaseAll):
            records = [Lease(each.name, None) for each in self.leases.values() if each.holder == request.holder]
            return CoordinatorResult(records, [Completion(event.future, len(records))], is_atomic=False)
        lease = self.leases.get(request.name)
        if lease is None:
            return self._granted(event, event.now)
        if not request.waits:
            event.future.set_result(lease.holder)
            return None
        self.waiting.setdefault(request.name, []).append(event)
        return CoordinatorResult()

    def _granted(self, event: CoordinatorEvent[Acquire], now: Now) -> CoordinatorResult[Lease]:
        request, future = event.request, event.future
        if not request.seconds:
            raise KafkaError("a lease takes some time", code=ErrorCode.INVALID_REQUEST)
        self.deadlines[request.name] = now.monotonic_seconds + request.seconds
        return CoordinatorResult(
            [Lease(request.name, request.holder, now.wall_ms + request.seconds * 1000)],
            [Completion(future, request.holder)],
            refused=lambda code: CoordinatorResult(completions=[Completion(future, code)]),
        )

    def on_timeout(self, key: str, now: Now, image: MetadataImage) -> CoordinatorResult[Lease] | None:
        if key not in self.leases or now.monotonic_seconds < self.deadlines[key]:
            return None
        if events := self.waiting.get(key):
            return self._granted(events.pop(0), now)
        return CoordinatorResult([Lease(key, None)])

    def next_deadline(self, key: str) -> float | None:
        return self.deadlines[key] if key in self.leases else None

    def encode(self, record: Lease) -> EncodedRecord:
        value = None if record.holder is None else f"{record.holder}:{record.expires_ms}".encode()
        return record.name.encode(), value

    def replay(self, record: EncodedRecord) -> None:
        key, value = record
        holder, colon, expires_ms = (value or b":0").decode().partition(":")
        if not colon:
            raise WireError("not a lease")
        self.apply(Lease(key.decode(), holder or None, int(expires_ms)))

    def apply(self, record: Lease) -> None:
        if record.holder is None:
            self.leases.pop(record.name, None)
        else:
            self.leases[record.name] = record

    def loaded(self, now: Now, image: MetadataImage) -> Mapping[str, CoordinatorResult[Lease]]:
        for lease in self.leases.values():
            self.deadlines[lease.name] = now.monotonic_seconds + (lease.expires_ms - now.wall_ms) / 1000
        return {}

    def observe(self, key: str, result: CoordinatorResult[Lease]) -> None:
        self.observed += result.records

    def timed_keys(self) -> Collection[str]:
        return self.leases

    def abandon(self, key: str, code: ErrorCode) -> Sequence[Completion]:
        del self.leases[key]
        return [Completion(event.future, code) for event in self.waiting.pop(key, ())]
