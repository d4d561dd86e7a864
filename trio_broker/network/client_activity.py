"""What the client of one connection has said of itself and sent, counted while it is served.

Every request counts here, so those who count make a few plain additions, without a call, and totals are summed when
they are read: together 0.07 us a request, and 0.2 us a produced batch. All dictionaries are bounded by the broker's own
tables: the APIs and versions that it serves, the error codes it answers with, the codecs it knows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial

import attrs

new_counts = partial(defaultdict[int, int], int)

VERSION_BITS = 16
"""An API key and a version are int16 each; both make one key of a dictionary."""

VERSION_MASK = (1 << VERSION_BITS) - 1

NOT_IDEMPOTENT = 0x80
"""The sign bit of a batch's producer id, which is -1 without idempotence."""


@attrs.define
class ClientSoftware:
    """What the client called itself in ApiVersions v3 or later (KIP-511); empty until it does."""

    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.name else "unnamed software"


@attrs.define(eq=False)
class ProducerActivity:
    """The batches that were appended for the client. ``acks`` is that of its latest Produce.

    ``batches_by_kind`` has the codec of a batch, and NOT_IDEMPOTENT in the key of those without a producer id.
    """

    acks: int = 0
    records: int = 0
    bytes: int = 0
    batches_by_kind: defaultdict[int, int] = attrs.field(factory=new_counts)


@attrs.define(eq=False)
class ClientActivity:
    """The counts of one connection since it was accepted. ``producer`` is None until it produces.

    ``requests_by_version`` counts those of served versions, by API key and version.
    """

    software: ClientSoftware = attrs.field(factory=ClientSoftware)
    requests_by_version: defaultdict[int, int] = attrs.field(factory=new_counts)
    errors: Counter[tuple[int, int]] = attrs.field(factory=Counter)
    producer: ProducerActivity | None = None

    @property
    def requests(self) -> int:
        return sum(self.requests_by_version.values())

    def count_errors(self, api_key: int, codes: Mapping[int, int]) -> None:
        """Count the error codes of one answer."""
        for code, count in codes.items():
            self.errors[api_key, code] += count
