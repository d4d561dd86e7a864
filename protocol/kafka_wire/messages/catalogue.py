"""Every request there is a file for, by API key.

For tests, fuzzing and tools that want them all. A broker needs only those it has handlers for, and imports them there.

Source: the files beside this one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

MESSAGE_FILES: Final = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "sasl_handshake",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "write_txn_markers",
    "txn_offset_commit",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_configs",
    "alter_configs",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "sasl_authenticate",
    "create_partitions",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "delete_groups",
    "elect_leaders",
    "incremental_alter_configs",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "offset_delete",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_quorum",
    "alter_partition",
    "update_features",
    "envelope",
    "describe_cluster",
    "describe_producers",
    "broker_registration",
    "broker_heartbeat",
    "unregister_broker",
    "describe_transactions",
    "list_transactions",
    "allocate_producer_ids",
    "consumer_group_heartbeat",
    "consumer_group_describe",
    "assign_replicas_to_dirs",
    "list_config_resources",
    "describe_topic_partitions",
)
"""The stems of the message files, in the order of their API keys."""


@functools.cache
def all_requests() -> Mapping[int, type[Any]]:
    """Return every request class by its API key; ``RESPONSE`` leads from there to the response class."""
    requests: dict[int, type[Any]] = {}
    for stem in MESSAGE_FILES:
        module = importlib.import_module(f"kafka_wire.messages.{stem}")
        request = getattr(module, "".join(word.capitalize() for word in stem.split("_")) + "Request")
        requests[request.API_KEY] = request
    return MappingProxyType(requests)
