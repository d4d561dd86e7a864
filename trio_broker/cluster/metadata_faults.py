"""What a broker does that cannot follow the metadata.

What cannot be read or folded is the end of it, on a broker alone as well: no image behind it would be the cluster's.

A part that fails at a change has missed it. Settings go on with the next one. Partitions and coordinators would follow
the next change from a state that never was: among several brokers this one stops, its leaderships go to others, and its
next start begins with the whole image. A broker alone goes on: nobody could take over, and one topic that is not as it
should be is less than all of them gone. Its log says what was missed.

Source: Kafka's FaultHandler, BrokerServer's metadata loading and publishing fault handlers.
"""

from __future__ import annotations

import logging

import attrs
import trio

from kafka_wire.errors import KafkaError, WireError

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class MetadataFaults:
    """``stops_for_parts`` says that a part that fails stops the broker. ``is_fatal`` is set once the broker has to."""

    stops_for_parts: bool = False
    is_fatal: trio.Event = attrs.field(factory=trio.Event, init=False)
    reason: str = attrs.field(default="", init=False)
    """Why, in one line; empty before."""

    def loading_failed(self, error: Exception) -> None:
        """The next batch cannot be read or folded."""
        # Such as a record that a newer version has written: the text says it all.
        is_explained = isinstance(error, KafkaError | WireError | NotImplementedError | OSError)
        text = str(error) if is_explained else f"{type(error).__name__}: {error}"
        self._stop(f"the metadata cannot be followed: {text}", None if is_explained else error)

    def registration_refused(self, reason: str) -> None:
        """Another process has taken the place of this broker."""
        self._stop(reason, None)

    def part_failed(self, part: str) -> None:
        """A part has missed a change, which was logged."""
        if self.stops_for_parts:
            self._stop(f"{part} has missed a change of the metadata", None)

    def _stop(self, reason: str, error: Exception | None) -> None:
        if not self.reason:
            self.reason = reason
            log.critical("%s", reason, exc_info=error)
        self.is_fatal.set()
