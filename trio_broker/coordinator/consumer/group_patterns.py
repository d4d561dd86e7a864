"""The regular expressions of one consumer group: when they are matched with the topics.

They are matched when a member brings a new one, when topics were created, and every
``group.consumer.regex.refresh.interval.ms``; but not more often than every ``MIN_REFRESH_MS``, and one resolution at a
time. Topics that the member may not describe, whose heartbeat begins a resolution, are not among the matches, as in
Kafka. A resolution goes on in the background, a step with each tick. Until its result is appended, members are
subscribed to the topics of the one before.

Source: Kafka's GroupMetadataManager.maybeUpdateRegularExpressions and handleRegularExpressionsResult.
"""

from __future__ import annotations

import enum

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate
from trio_broker.coordinator.consumer.member import ConsumerMember
from trio_broker.coordinator.consumer.records import pattern_tombstone
from trio_broker.coordinator.consumer.topic_patterns import InvalidPattern, PatternResolution, check_pattern
from trio_broker.coordinator.group_event import GroupEventKind

MIN_REFRESH_MS = 10_000
"""Between two resolutions of one group: a client that subscribes to ever new patterns cannot have one for each."""

MAX_SHOWN_CHARACTERS = 200
"""Of a pattern, in an error message."""


class PatternChange(enum.Enum):
    """What a request did to the member's regular expression."""

    NONE = enum.auto()
    UNRESOLVED = enum.auto()
    """It changed, and its topics are not known yet."""
    RESOLVED = enum.auto()
    """It changed, and its topics are known: it was removed, or others had subscribed to it before."""


class GroupPatterns:
    """The resolution that goes on, and whether the last one may be out of date."""

    def __init__(self) -> None:
        self._resolution: PatternResolution | None = None
        self._topics_changed = True
        """Whether topics were created since the last resolution; after a start that is not known."""

    @property
    def is_resolving(self) -> bool:
        return self._resolution is not None

    def topics_changed(self) -> None:
        self._topics_changed = True

    def drop_resolution(self) -> None:
        """The result could not be appended; a heartbeat begins anew."""
        self._resolution = None
        self._topics_changed = True

    def update_subscription(
        self, update: ConsumerGroupUpdate, member: ConsumerMember, updated: ConsumerMember, *, joins: bool
    ) -> bool:
        """Let the group's epoch follow the subscription of ``updated``; return whether the subscription changed.

        Raises:
            KafkaError: ``INVALID_REGULAR_EXPRESSION``.
        """
        names_changed = update.upsert_member(member, updated)
        pattern_change = self._update_pattern(update, member, updated)
        changed = names_changed or pattern_change is not PatternChange.NONE
        if changed and not joins:
            update.record_event(GroupEventKind.SUBSCRIPTION_CHANGED, updated)
        # The topics of a pattern that is not resolved raise the epoch when they are known.
        topics_changed = names_changed or pattern_change is PatternChange.RESOLVED
        update.follow_topics(member, updated, subscription_changed=topics_changed)
        return changed

    def _update_pattern(
        self, update: ConsumerGroupUpdate, member: ConsumerMember, updated: ConsumerMember
    ) -> PatternChange:
        stored = update.stored
        old, new = member.pattern, updated.pattern
        if old is None and new is None and not stored.pattern_subscribers:
            return PatternChange.NONE
        change = PatternChange.NONE if old == new else PatternChange.UNRESOLVED
        is_first = old != new and new is not None and stored.pattern_subscribers[new] == 0
        if is_first:
            _require_valid(new or "")
        if old != new and old is not None and stored.pattern_subscribers[old] == 1:
            update.result.records.append(pattern_tombstone(stored.group_id, old))
        if old != new and (new is None or (not is_first and new in stored.patterns)):
            change = PatternChange.RESOLVED
        self._begin_if_due(update, old, new)
        return change

    def _begin_if_due(self, update: ConsumerGroupUpdate, old: str | None, new: str | None) -> None:
        stored, now_ms = update.stored, update.now.wall_ms
        if self._resolution is not None:
            return
        refreshed_at_ms = max((pattern.timestamp_ms for pattern in stored.patterns.values()), default=None)
        # Not "less than the interval ago": a clock that was put back must not delay resolutions until it has caught up.
        if refreshed_at_ms is not None and 0 <= now_ms - refreshed_at_ms <= MIN_REFRESH_MS:
            return
        wanted = set(stored.pattern_subscribers)
        if old is not None and old != new and stored.pattern_subscribers[old] == 1:
            wanted.discard(old)
        if new is not None:
            wanted.add(new)
        interval_ms = update.settings.group_consumer_regex_refresh_interval_ms
        is_old = refreshed_at_ms is None or not 0 <= now_ms - refreshed_at_ms <= interval_ms
        if wanted and (is_old or self._topics_changed or not wanted <= stored.patterns.keys()):
            self._resolution = PatternResolution(sorted(wanted), list(update.image.topics), now_ms, update.may_see)
            self._topics_changed = False

    def work(self, update: ConsumerGroupUpdate) -> None:
        """Do one step of the resolution, and record its result after the last one."""
        if self._resolution is None or not self._resolution.step():
            return
        result = self._resolution.result()
        self._resolution = None
        update.resolved(result.items())


def _require_valid(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except InvalidPattern as error:
        text = f"the regular expression {pattern[:MAX_SHOWN_CHARACTERS]!r} cannot be used: {error}"
        raise KafkaError(text, code=ErrorCode.INVALID_REGULAR_EXPRESSION) from None
