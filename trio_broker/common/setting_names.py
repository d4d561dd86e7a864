"""Names of settings that clients and brokers of a cluster both go by; all others are declared in ``config``."""

from __future__ import annotations

from typing import Final

DECOMMISSION: Final = "broker.decommission"
"""The setting of a broker that is to leave the cluster (``cluster/decommission.py``)."""
