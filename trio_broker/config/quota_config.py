"""The settings of quotas of clients; the quotas themselves are in the metadata.

Source: Kafka's QuotaConfig.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import key
from trio_broker.config.validators import at_least


@attrs.frozen(kw_only=True)
class QuotaConfig:
    """Over how long what a client has is measured."""

    quota_window_num: int = key(
        11, "Over how many windows bytes and request times of clients are measured.", validator=at_least(1)
    )
    quota_window_size_seconds: int = key(1, "How long each of these is.", validator=at_least(1))
    controller_quota_window_num: int = key(
        11, "How many windows of controller_mutation_rate a client may save up.", validator=at_least(1)
    )
    controller_quota_window_size_seconds: int = key(1, "How long each of these is.", validator=at_least(1))
