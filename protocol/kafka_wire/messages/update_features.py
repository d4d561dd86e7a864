"""UpdateFeatures (api key 57): set the levels that features of the cluster are finalized at (KIP-584).

Version notes:

* 0: flexible from the start.
* 1: the type of the change in place of ``allow_downgrade``, and ``validate_only`` (KIP-778).
* 2: no results for single features: all are changed or none is (KIP-1022).

Source: Kafka's UpdateFeaturesRequest.json and UpdateFeaturesResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """The features to change; with ``validate_only`` nothing happens but the checks."""

    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Boolean = field("1+", default=False)


@struct
class FeatureUpdateKey:
    """One feature. Level 0 switches it off.

    ``upgrade_type`` is 1 for an upgrade, 2 for a downgrade that loses nothing, 3 for one that may lose metadata.
    """

    feature: String
    max_version_level: Int16
    allow_downgrade: Boolean = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """How the request fared and, in versions that say so, each feature."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
    results: list[UpdatableFeatureResult] = field("0-1", factory=list, ignorable=True)


@struct
class UpdatableFeatureResult:
    feature: String
    error_code: Int16 = field(default=0)
    error_message: String | None
