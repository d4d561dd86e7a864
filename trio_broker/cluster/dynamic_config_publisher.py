"""The settings of this broker, from the image or on trial, put in effect.

``BrokerConfig`` has the values; the parts that act on a change of one are ``reconfigurables``, notified in the order in
which they are declared, each behind a barrier of its own.

Source: Kafka's DynamicConfigPublisher, BrokerConfigHandler and BrokerReconfigurable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.changes.audit_context import CALLER, THE_BROKER
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import differences
from trio_broker.cluster.barrier import barrier
from trio_broker.cluster.configuration_control import scope_of
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, MetadataImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope, ValueChange
from trio_broker.config.keys import BROKER_KEYS


class BrokerReconfigurable(Protocol):
    """A part of the broker that acts on a change of its settings."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow ``config``, in which some value, perhaps of another part, is new."""
        ...


@attrs.define(eq=False)
class DynamicConfigPublisher:
    """Passes on to ``config`` the dynamic settings of the cluster and of this broker, and those on trial."""

    config: BrokerConfig
    reconfigurables: Sequence[BrokerReconfigurable] = ()

    @property
    def broker_resource(self) -> ConfigResource:
        """The holder of this broker's own settings."""
        return ConfigResource.of_broker(self.config.node.node_id)

    def apply(self, image: MetadataImage, resources: Iterable[ConfigResource]) -> list[MadeChange]:
        """Put in effect what ``resources`` have in ``image``, as far as it is for this broker; return what changed."""
        relevant = (CLUSTER_DEFAULT, self.broker_resource)
        made = (self._apply(image, resource) for resource in resources if resource in relevant)
        return [change for change in made if change is not None]

    def try_values(self, values: Mapping[str, str | None]) -> tuple[ValueChange, ...]:
        """Put settings of this broker in effect without writing them; return the effective values that changed.

        Raises:
            ConfigError: as ``BrokerConfig.try_values``.
        """
        return self._followed(self.config.try_values(values))

    def end_trial(self) -> tuple[ValueChange, ...]:
        """Take back what was tried; return the effective values that changed."""
        return self._followed(self.config.end_trial())

    def _followed(self, effective: tuple[ValueChange, ...]) -> tuple[ValueChange, ...]:
        """``effective``, once all parts have followed."""
        for part in self.reconfigurables if effective else ():
            with barrier(part):
                part.reconfigure(self.config)
        return effective

    def _apply(self, image: MetadataImage, resource: ConfigResource) -> MadeChange | None:
        scope = scope_of(resource)
        before, tried = self.config.dynamic(scope), self.config.tried
        effective = self._followed(self.config.set_dynamic(scope, image.configs(resource)))
        # A trial that is kept was recorded when it began.
        said = {*(each.name for each in effective), *(tried if scope is ConfigScope.BROKER else ())}
        stored = differences(before, self.config.dynamic(scope))
        # What the broker itself writes at its first start was asked for by nobody.
        is_asked_for = CALLER.get() is not THE_BROKER
        shadowed = tuple(without_secret(each) for each in stored if is_asked_for and each.name not in said)
        if not effective and not shadowed:
            return None
        kind = ChangedResource.BROKER if resource.name else ChangedResource.CLUSTER
        return MadeChange(ChangeAction.CONFIG, kind, resource.name, effective, shadowed_values=shadowed)


def without_secret(value: ValueChange) -> ValueChange:
    """``value``, or only the name of a secret."""
    key = BROKER_KEYS.get(value.name)
    return ValueChange(value.name, None, None) if key is None or key.sensitive else value
