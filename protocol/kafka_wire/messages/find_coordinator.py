"""FindCoordinator (api key 10): which broker looks after a group or a transactional id.

Key types: 0 group, 1 transactional id, 2 share group (the key is then ``group:topic id:partition``).

Version notes:

* 0: groups only.
* 1: key types; throttle time and error messages.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: flexible versions.
* 4: many keys at once (KIP-699): ``coordinator_keys`` and ``coordinators`` in place of the single fields.
* 5: TRANSACTION_ABORTABLE may be answered (KIP-890).
* 6: share groups (KIP-932).

Source: Kafka's FindCoordinatorRequest.json and FindCoordinatorResponse.json.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct

BATCHED_SINCE_VERSION: Final = 4
"""From it on there are many keys, each answered on its own (KIP-699)."""


class KeyType(enum.IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTIONAL_ID = 1
    SHARE_PARTITION = 2


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """``key`` up to version 3, ``coordinator_keys`` from 4 on, all of one ``key_type``."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", factory=list)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator in the single fields up to version 3, one for each key from 4 on."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", factory=list)


@struct
class Coordinator:
    """The coordinator of one key; node -1, no host and port -1 beside an error."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None
