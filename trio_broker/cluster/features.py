"""The features of the cluster: the levels that this broker supports, and those that are finalized.

This broker supports the levels in ``SUPPORTED``; the level that the cluster uses is finalized in the metadata log and
part of the image. The first start of a cluster finalizes every supported feature at the highest level that all of its
brokers know, and so does the first start of a newer broker on the data directory of an older one. A finalized level,
level 0 included, stays until UpdateFeatures changes it. ``SUPPORTED_WITH_REPLICAS`` are features that mean something
only to several brokers: a broker that is a cluster alone finalizes none of them.

Source: Kafka's FeatureControlManager, QuorumFeatures and GroupVersion; KIP-584, KIP-778.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ClearElrRecord, FeatureLevelRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.metadata_image import MetadataImage

ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
"""At 1, replicas that have left an ISR which was too small may lead, and a broker that ended without a clean stop may
not (KIP-966)."""

GROUP_VERSION: Final = "group.version"
"""At 1, groups may speak the consumer protocol (KIP-848)."""

TRANSACTION_VERSION: Final = "transaction.version"
"""At 2, each transaction ends with a raised epoch, and Produce adds partitions by itself (KIP-890)."""


@attrs.frozen
class FeatureLevels:
    """The levels of a feature that this broker knows. At level 0 a feature is off."""

    low: int
    high: int


SUPPORTED: Final[dict[str, FeatureLevels]] = {
    GROUP_VERSION: FeatureLevels(0, 1),
    TRANSACTION_VERSION: FeatureLevels(0, 2),
}

SUPPORTED_WITH_REPLICAS: Final[dict[str, FeatureLevels]] = {
    **SUPPORTED,
    ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureLevels(0, 1),
}

METADATA_VERSION: Final = "metadata.version"
"""At 25, which is 4.0-IV3, the records of the cluster's metadata are those that every Kafka from 4.0 on reads. Decision
0075 says why it is no higher."""

KRAFT_VERSION: Final = "kraft.version"
"""At 0, the quorum of the metadata log does not change."""

FIXED: Final[Mapping[str, int]] = {METADATA_VERSION: 25, KRAFT_VERSION: 0}
"""Features of one level, which is always finalized; no record says so."""

UNKNOWN_FEATURE: Final = FeatureLevels(0, 0)
"""What Kafka takes for the levels of a feature that a node does not know: off."""


class UpgradeType(enum.IntEnum):
    """Which way a level may change, numbered as UpdateFeatures sends it. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@attrs.frozen
class FeatureUpdate:
    """A level to finalize. ``upgrade_type`` is a number of ``UpgradeType``, or an unknown one."""

    feature: str
    level: int
    upgrade_type: int


def own_features() -> dict[str, FeatureLevels]:
    """The levels that this broker knows, by feature."""
    return {**{name: FeatureLevels(level, level) for name, level in FIXED.items()}, **SUPPORTED_WITH_REPLICAS}


def decide_features(image: MetadataImage, highest_levels: Sequence[Mapping[str, int]] = ()) -> list[FeatureLevelRecord]:
    """Finalize the supported features that have no level in the cluster yet, at the highest level known.

    ``highest_levels`` are those that the brokers know, by feature; without, the cluster is this one alone. What one of
    them does not know is left for later.
    """
    records = []
    for name, levels in (SUPPORTED_WITH_REPLICAS if highest_levels else SUPPORTED).items():
        level = min([levels.high, *(known.get(name, 0) for known in highest_levels)])
        if name not in image.features and level > 0:
            records.append(FeatureLevelRecord(name=name, feature_level=level))
    return records


def reason_against_features(image: MetadataImage, known_by_broker: Mapping[str, FeatureLevels]) -> str:
    """Return why a broker that knows these levels cannot be part of the cluster, or the empty string."""
    for name, level in {**FIXED, **image.features}.items():
        known = known_by_broker.get(name, UNKNOWN_FEATURE)
        if not known.low <= level <= known.high:
            return (
                f"does not support finalized version {level} of {name}. The broker wants a version between"
                f" {known.low} and {known.high}, inclusive."
            )
    return ""


def require_supported(image: MetadataImage) -> None:
    """Refuse a cluster for which a newer version has promised what this one would not do.

    Raises:
        MetadataLogUnusable: the level of a feature is not among those of this broker.
    """
    beyond = [
        f"{name} is {level}, and this version knows {supported.low} to {supported.high}"
        for name, level in sorted(image.features.items())
        if not (supported := supported_levels(image, name)).low <= level <= supported.high
    ]
    if beyond:
        raise MetadataLogUnusable(f"a newer version has raised features of the cluster: {'; '.join(beyond)}")


def decide_feature_updates(
    image: MetadataImage, node_id: int, updates: Sequence[FeatureUpdate]
) -> ControllerResult[Mapping[str, int]]:
    """Finalize all the levels asked for, or none; return those that are new. Of a feature that is named twice the last
    level counts.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION: a level is not known, or lies the other way than the type of its update.
    """
    levels = {}
    for update in updates:
        if reason := reason_to_refuse(image, node_id, update):
            raise KafkaError(
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.feature}. {reason}",
                code=ErrorCode.INVALID_UPDATE_VERSION,
            )
        levels[update.feature] = update.level
    new = {name: level for name, level in levels.items() if level != current_level(image, name)}
    records: list[FeatureLevelRecord | ClearElrRecord] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in new.items()
    ]
    if new.get(ELIGIBLE_LEADER_REPLICAS_VERSION) == 0:
        # Nobody keeps the lists up to date from here on.
        records.append(ClearElrRecord(topic_name=""))
    return ControllerResult(new, records)


def reason_to_refuse(image: MetadataImage, node_id: int, update: FeatureUpdate) -> str | None:
    """Return in Kafka's words why a level cannot be finalized; None when it can."""
    current, supported = current_level(image, update.feature), supported_levels(image, update.feature)
    if update.upgrade_type not in UpgradeType.__members__.values():
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if not supported.low <= update.level <= supported.high:
        if supported is UNKNOWN_FEATURE:
            return f"Local controller {node_id} does not support this feature."
        return f"Local controller {node_id} only supports versions {supported.low}-{supported.high}"
    for broker in image.brokers.values():
        low, high = broker.features.get(update.feature, (0, 0))
        if broker.features and not low <= update.level <= high:
            return f"Broker {broker.broker_id} only supports versions {low}-{high}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    # Of an unknown feature only level 0 comes so far.
    return f"Feature {update.feature} not found." if supported is UNKNOWN_FEATURE else None


def current_level(image: MetadataImage, feature: str) -> int:
    """The level that the cluster uses; 0 of a feature that it does not know."""
    return FIXED.get(feature, image.features.get(feature, 0))


def supported_levels(image: MetadataImage, feature: str) -> FeatureLevels:
    """The levels of ``feature`` that this broker knows, in such a cluster."""
    if (level := FIXED.get(feature)) is not None:
        return FeatureLevels(level, level)
    return supported_features(image.features).get(feature, UNKNOWN_FEATURE)


def supported_features(finalized: Container[str]) -> Mapping[str, FeatureLevels]:
    """The features that mean something in a cluster in which these are ``finalized``."""
    return SUPPORTED_WITH_REPLICAS if ELIGIBLE_LEADER_REPLICAS_VERSION in finalized else SUPPORTED


def require_consumer_protocol(image: MetadataImage, protocols: Collection[str]) -> None:
    """Refuse requests of the consumer protocol while ``group.version`` is 0, or it is not among ``protocols``
    (``group.coordinator.rebalance.protocols``).

    Raises:
        KafkaError: UNSUPPORTED_VERSION.
    """
    if image.features.get(GROUP_VERSION, 0) == 0:
        raise KafkaError(
            f"the consumer protocol is switched off: {GROUP_VERSION} is 0", code=ErrorCode.UNSUPPORTED_VERSION
        )
    if "consumer" not in protocols:
        raise KafkaError(
            "the consumer protocol is not among group.coordinator.rebalance.protocols",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
