"""The errors that clients were answered with last, by API, error code and client.

An error code in an answer is the client's to report, and many report nothing: they try again, or wait. So the broker
keeps for each API, code and client how often it gave that answer and when. It costs nothing while answers carry no
error, and about a microsecond for each code of an answer that does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import attrs

from kafka_wire.apis import api_name
from kafka_wire.error_codes import ErrorCode
from trio_broker.network.client_activity import ClientSoftware
from trio_broker.network.statistics import RecentError

MAX_RECENT_ERRORS = 100
"""Entries kept, the latest ones; about 1 KB each."""

MAX_CLIENT_ID_CHARACTERS = 300
"""Of a client id, which may have 32 KB."""

STEPS_OF_THE_PROTOCOL = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})
"""Codes of every rebalance: a new member is sent back with its id (KIP-394), an old one learns that it must rejoin."""


@attrs.define(eq=False)
class ErrorTally:
    """How often one client was answered with one code, and when."""

    first_at_ms: int
    last_at_ms: int
    count: int = 0


class RecentErrors:
    """The latest errors, bounded."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[tuple[int, int, str | None, str, str], ErrorTally] = OrderedDict()

    def add(
        self, api_key: int, codes: Mapping[int, int], client_id: str | None, software: ClientSoftware, now_ms: int
    ) -> None:
        """Count the error codes of one answer."""
        if client_id is not None:
            client_id = client_id[:MAX_CLIENT_ID_CHARACTERS]
        for code, count in codes.items():
            if code in STEPS_OF_THE_PROTOCOL:
                continue
            key = (api_key, code, client_id, software.name, software.version)
            tally = self._tallies.pop(key, None) or ErrorTally(now_ms, now_ms)
            tally.last_at_ms = now_ms
            tally.count += count
            self._tallies[key] = tally
        while len(self._tallies) > MAX_RECENT_ERRORS:
            self._tallies.popitem(last=False)

    def latest_first(self) -> list[RecentError]:
        return [
            RecentError(
                api=api_name(api_key),
                error=ErrorCode(code).name,
                client_id=client_id,
                software_name=software_name,
                software_version=software_version,
                count=tally.count,
                first_at_ms=tally.first_at_ms,
                last_at_ms=tally.last_at_ms,
            )
            for (api_key, code, client_id, software_name, software_version), tally in reversed(self._tallies.items())
        ]
