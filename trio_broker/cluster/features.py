"""The features of the cluster: what may be switched on for all brokers at once, and what is.

A feature has levels. This broker knows those in ``SUPPORTED``; the one that the cluster runs is finalised in the
metadata log and shows in the image. There is one broker, so nobody has to be waited for: what it knows is finalised at
its highest level by its first start, and by the first start of a newer broker on the data directory of an older one. A
level that is there already stays.

Source: Kafka's FeatureControlManager and GroupVersion; KIP-584.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kafka_wire.stored.metadata import FeatureLevelRecord
from trio_broker.cluster.metadata_image import MetadataImage

GROUP_VERSION: Final = "group.version"
"""At 1, groups may speak the consumer protocol (KIP-848)."""


@attrs.frozen
class FeatureLevels:
    """The levels of a feature that this broker knows. At level 0 a feature is off."""

    low: int
    high: int


SUPPORTED: Final[Mapping[str, FeatureLevels]] = {GROUP_VERSION: FeatureLevels(0, 1)}


def decide_features(image: MetadataImage) -> list[FeatureLevelRecord]:
    """Finalise what this broker knows and the cluster has no level of."""
    return [
        FeatureLevelRecord(name=name, feature_level=levels.high)
        for name, levels in SUPPORTED.items()
        if name not in image.features
    ]
