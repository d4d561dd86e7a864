"""The bit field in which responses tell what a client may do to a topic, a group or the cluster (KIP-430).

Source: Kafka's MetadataResponse.json and its siblings, which share this default.
"""

from __future__ import annotations

OPERATIONS_NOT_REQUESTED = -(2**31)
"""The value of the field when the client did not ask; 0 would say that the client may do nothing at all."""
