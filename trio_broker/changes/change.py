"""One change of the broker: what was changed, by which client, and its effect.

The values are also the JSON of ``/api/v1/changes`` and of the lines in ``changes.jsonl``, so renaming an attribute is a
change of both. Times are milliseconds since 1970 UTC (``_at_ms``), ratios run from 0 to 1, absent is None.

Source: docs/formats/changes.md.
"""

from __future__ import annotations

import enum

import attrs

from trio_broker.config.entries import ValueChange

MIN_TRIAL_SECONDS = 10
"""Fewer seconds of readings say nothing."""

MAX_TRIAL_SECONDS = 600
"""What has worked for ten minutes can be decided about; a trial is no way to schedule changes."""


MAX_COMPARED_SECONDS = 300
"""Of each of the spans of a comparison: six of them are half of the hour that the broker keeps each second of."""

COMPARED_PAIRS = 3
"""How often a comparison has the old value and then the new one."""


class ChangeAction(enum.Enum):
    """What was done to a resource."""

    CONFIG = "config"
    """Settings were set or reset."""
    STARTED = "started"
    """The broker was started with other settings in its file, environment or command line than the time before."""
    CREATED = "created"
    DELETED = "deleted"
    PARTITIONS_ADDED = "partitions-added"
    RECORDS_DELETED = "records-deleted"
    """The log start offset of partitions was moved forward."""
    OFFSETS_RESET = "offsets-reset"
    """Offsets of a group were committed by a client that is no member of it."""
    OFFSETS_DELETED = "offsets-deleted"
    ABORTED = "aborted"
    """A transaction was aborted by the admin API: as a whole by its coordinator, or where it hung, in a partition."""


class ChangedResource(enum.Enum):
    """The kind of thing that was changed."""

    BROKER = "broker"
    CLUSTER = "cluster"
    """The defaults of all brokers."""
    BROKER_LOGGER = "broker-logger"
    """The levels of a broker's loggers, until its next start."""
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    """A subscription to metrics of clients."""
    ACL = "acl"
    """An access control entry, named by what it says."""
    QUOTA = "quota"
    """The quotas of a user, client id or address, named by whom they are for."""
    USER = "user"
    """The passwords of a user of SCRAM, by mechanism; of each its iterations alone."""
    TRANSACTION = "transaction"
    """Named by its transactional id, or by its producer if no coordinator knew it."""


class ChangeChannel(enum.Enum):
    """How a change reached the broker."""

    PAGE = "page"
    HTTP = "http"
    KAFKA = "kafka"
    START = "start"
    """Found when the broker was started."""
    BROKER = "broker"
    """The broker made it by itself: a tried value that was not kept."""
    DECLARATION = "declaration"
    """The broker made it at a start, because a topic was declared; the request is the file or the option."""


@attrs.frozen
class ChangeOrigin:
    """Which client asked for a change, in its own words, from which address and by which request.

    ``client`` is a Kafka client's id or the ``X-Requested-With`` of an HTTP request; nothing proves either. ``role`` is
    what an HTTP client has logged in as, and ``principal`` what a Kafka client has; empty without a login.
    """

    channel: ChangeChannel
    client: str = ""
    address: str = ""
    request: str = ""
    role: str = ""
    principal: str = ""

    @property
    def change_origin(self) -> ChangeOrigin:
        """Itself: an origin is a ``Caller``."""
        return self

    def through(self, broker_id: int) -> ChangeOrigin:
        """Itself with the broker that the client has asked, which is there already if that has sent the request on."""
        if not self.address or " by " in self.address:
            return self
        return attrs.evolve(self, address=f"{self.address} by broker {broker_id}")


@attrs.frozen
class MadeChange:
    """What was changed. ``values`` are settings, partitions or offsets by name; a secret's old and new are None."""

    action: ChangeAction
    resource_type: ChangedResource
    resource: str
    values: tuple[ValueChange, ...] = ()
    further_values: int = 0
    """Values beyond those that are kept of one change."""
    shadowed_values: tuple[ValueChange, ...] = ()
    """Settings of brokers that were set or reset without an effect, as they stand at their level: another level has a
    stronger value, or the same."""


class TrialOutcome(enum.Enum):
    """How a trial of settings stands."""

    RUNNING = "running"
    KEPT = "kept"
    UNDONE = "undone"
    REPLACED = "replaced"
    """All the settings on trial were changed for good meanwhile, which ended the trial."""
    CANCELLED = "cancelled"
    """Settings were changed during a comparison, which ended it."""


@attrs.frozen
class Trial:
    """A change for ``seconds`` only, undone by the broker at ``ends_at_ms`` unless it is kept.

    ``ended_by`` kept or undid it at ``ended_at_ms``; both are None before, and where its settings were replaced.

    A *comparison* has the old values and then the new ones in effect, ``seconds`` each, for so many ``pairs``; 0 is a
    plain trial. ``switches_at_ms`` is when it went from one to the other.
    """

    seconds: int
    ends_at_ms: int
    outcome: TrialOutcome = TrialOutcome.RUNNING
    ended_at_ms: int | None = None
    ended_by: ChangeOrigin | None = None
    pairs: int = 0
    switches_at_ms: tuple[int, ...] = ()


class EffectVerdict(enum.Enum):
    """What the readings before and after a change say about it."""

    NO_CHANGE = "no-change"
    """What differs is within what the readings do by themselves."""
    LOAD_DIFFERED = "load-differed"
    """The clients did something else after the change, so that the readings cannot be compared."""
    BETTER = "better"
    WORSE = "worse"
    MIXED = "mixed"
    """Some readings became better and others worse."""
    CPU_DIFFERED = "cpu-differed"
    """Other processes had the CPUs before or after, which would explain what differs."""
    TOO_LITTLE_HISTORY = "too-little-history"
    """What the readings do by themselves is not known yet."""
    NO_RATE = "no-rate"
    """None of the settings can act on rates or latencies, so that nothing was compared."""
    NO_LOAD = "no-load"
    TOO_SHORT = "too-short"
    """One of the two spans has too few seconds."""


WIDEST_SHOWN_BAND = 9.99
"""A wider band is named by this much: a reading that does more by itself says nothing, however much more it is."""


class ReadingUnit(enum.Enum):
    """What the numbers of a reading are."""

    PER_SECOND = "1/s"
    RECORDS_PER_SECOND = "records/s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    SECONDS = "s"
    MILLISECONDS = "ms"
    RATIO = "ratio"
    COUNT = "count"


@attrs.frozen
class EffectReading:
    """One reading before and after a change, None where nothing was measured.

    ``difference`` is relative to ``before``; of a ratio it is ``after`` minus ``before``. ``band`` is, in the same way,
    what the reading differs by by itself: None for one that is not judged or whose band is not known.
    """

    name: str
    unit: ReadingUnit
    before: float | None
    after: float | None
    difference: float | None
    band: float | None = None


def relative_band_text(band: float) -> str:
    """What a reading that is no share differs by by itself: ``± 40 %``."""
    return f"{'over ' if band > WIDEST_SHOWN_BAND else ''}± {100 * min(band, WIDEST_SHOWN_BAND):.0f} %"


@attrs.frozen
class ChangeEffect:
    """The readings before and after a change of settings, and what they say in one sentence."""

    verdict: EffectVerdict
    summary: str
    before_seconds: int
    after_seconds: int
    readings: tuple[EffectReading, ...] = ()


@attrs.frozen(kw_only=True)
class Change(MadeChange):
    """One change as it is kept. ``number`` grows by one with each change and names it for good.

    ``undoes`` is the number of the change whose trial this one ended. ``effect`` is there once the time after the
    change has been measured.
    """

    number: int
    changed_at_ms: int
    origin: ChangeOrigin
    undoes: int | None = None
    trial: Trial | None = None
    effect: ChangeEffect | None = None

    @property
    def is_comparison(self) -> bool:
        """Whether its old and new values are, or were, in effect in turn."""
        return self.trial is not None and self.trial.pairs > 0

    @property
    def is_of_settings(self) -> bool:
        """Whether the broker's readings before and after are worth comparing."""
        return self.action is ChangeAction.CONFIG and bool(self.values)


def with_outcome(
    change: Change, outcome: TrialOutcome, ended_at_ms: int | None = None, ended_by: ChangeOrigin | None = None
) -> Change:
    """``change``, which is on trial, after its trial."""
    assert change.trial is not None, change
    trial = attrs.evolve(change.trial, outcome=outcome, ended_at_ms=ended_at_ms, ended_by=ended_by)
    return attrs.evolve(change, trial=trial)
