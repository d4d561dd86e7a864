"""The settings of this broker in the image, and those on trial, put in effect.

Source: Kafka's DynamicConfigPublisher and BrokerConfigHandler.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from trio_broker.changes.caller import CALLER, THE_BROKER
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import differences
from trio_broker.cluster.configuration_control import scope_of
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, MetadataImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope, ValueChange
from trio_broker.config.keys import BROKER_KEYS


@attrs.define(eq=False)
class DynamicConfigPublisher:
    """Passes on to ``config`` the dynamic settings of the cluster and of this broker."""

    config: BrokerConfig

    @property
    def broker_resource(self) -> ConfigResource:
        """The holder of this broker's own settings."""
        return ConfigResource.of_broker(self.config.node.node_id)

    def apply(self, image: MetadataImage, resources: Iterable[ConfigResource]) -> list[MadeChange]:
        """Put in effect what ``resources`` have in ``image``, as far as it is for this broker; return what changed."""
        relevant = (CLUSTER_DEFAULT, self.broker_resource)
        made = (self._apply(image, resource) for resource in resources if resource in relevant)
        return [change for change in made if change is not None]

    def _apply(self, image: MetadataImage, resource: ConfigResource) -> MadeChange | None:
        scope = scope_of(resource)
        before, tried = self.config.dynamic(scope), self.config.tried
        effective = self.config.set_dynamic(scope, image.configs(resource))
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
