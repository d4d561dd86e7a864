"""The write operations of a controller: decide on the image, append, and wait until this broker follows.

Decision and append are under one lock, so that a decision is still valid when it is written. The wait is without it, so
that a part that is slow holds up its own request and no decision. A request that is cancelled leaves nothing half done:
what was appended is published.

Source: Kafka's QuorumController (ControllerWriteEvent), ConfigurationControlManager for the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka_wire.errors import KafkaError
from trio_broker.changes.change import Change
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import ExpectedChange, MetadataLoader
from trio_broker.cluster.metadata_log_writer import MetadataLogWriter
from trio_broker.cluster.metadata_store import MetadataStore
from trio_broker.concurrency.free_lock import FreeLock
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope
from trio_broker.runtime.clock import Clock

T = TypeVar("T")


class WriteOperations:
    """See the head of the file. ``lock`` is held from a decision up to the end of its append."""

    def __init__(self, store: MetadataStore, loader: MetadataLoader, config: BrokerConfig, clock: Clock) -> None:
        self.loader = loader
        self.writer = MetadataLogWriter(store, loader, clock)
        self.lock = FreeLock()
        self._config = self._settings = config
        self._layers: Mapping[ConfigScope, Mapping[str, str]] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.writer.is_active

    @property
    def image(self) -> MetadataImage:
        """The image that the next decision is made on."""
        return self.writer.image

    @property
    def settings(self) -> BrokerConfig:
        """The settings that decisions about topics and groups read: those that the image has for the cluster and for
        the controller's node, over the static ones of the node.

        So a decision depends on the log and the node's file alone, not on what is on trial or has failed to take
        effect.
        """
        layers = self.image.config_layers(self._config.node.node_id)
        if layers != self._layers:
            self._layers, self._settings = layers, self._config.with_dynamic(layers)
        return self._settings

    async def decide(
        self,
        decide: Callable[[], ControllerResult[T] | Steps[ControllerResult[T]]],
        *,
        validate_only: bool = False,
        written: Callable[[T], object] | None = None,
        follows: bool = True,
        is_recorded: bool = False,
    ) -> T:
        """Carry out one decision, which may be refused as a whole, and return its outcome.

        With that ``written`` is called behind the write, before the next decision. Without ``follows`` nobody waits
        until this broker follows. ``is_recorded`` as for ``carry_out``.
        """
        async with self.lock:
            self.writer.require_active()
            decided = decide()
            decision = decided if isinstance(decided, ControllerResult) else await run_steps(decided)
            if not validate_only:
                await self._append([decision], is_recorded=is_recorded)
            if written is not None:
                written(decision.outcome)
            end_offset = self.writer.end_offset
        if follows:
            await self.loader.wait_loaded(end_offset)
        return decision.outcome

    async def carry_out(
        self,
        decide: Callable[[], Steps[Iterable[ControllerResult[T] | KafkaError]]],
        *,
        validate_only: bool = False,
        follows: bool = True,
        is_recorded: bool = False,
    ) -> tuple[list[T | KafkaError], Sequence[Change]]:
        """Decide about several items and, unless only validating, append what was decided as one; with ``follows`` wait
        until this broker has followed. ``is_recorded`` says that it may change what journals have. Returns each outcome
        or error, and what was recorded as changed.
        """
        async with self.lock:
            self.writer.require_active()
            # The image stands still meanwhile: only the holder of the lock appends.
            decisions = [decision async for decision in InTurns(await run_steps(decide()))]
            change = None if validate_only else await self._append(decisions, is_recorded=is_recorded)
            end_offset = self.writer.end_offset
        # A refusal waits too: a topic that is there already is one that this broker knows.
        if follows:
            await self.loader.wait_loaded(end_offset)
        return await outcomes_of(decisions), () if change is None else change.recorded

    async def _append(
        self, decisions: Sequence[ControllerResult[Any] | KafkaError], *, is_recorded: bool = False
    ) -> ExpectedChange | None:
        """Append the records of all decisions as one; None if there are none."""
        records = await records_of(decisions)
        return await self.writer.append(records, is_recorded=is_recorded) if records else None


async def records_of(decisions: Sequence[ControllerResult[Any] | KafkaError]) -> list[Any]:
    """The records of all decisions, in their order."""
    records: list[Any] = []
    async for item in InTurns(decisions):
        if isinstance(item, ControllerResult):
            # Those of a topic's partitions are made when they are asked for.
            records += [record async for record in InTurns(item.records)]
    return records


async def outcomes_of(decisions: Sequence[ControllerResult[T] | KafkaError]) -> list[T | KafkaError]:
    """The outcome of each decision, or its error."""
    return [each.outcome if isinstance(each, ControllerResult) else each async for each in InTurns(decisions)]
