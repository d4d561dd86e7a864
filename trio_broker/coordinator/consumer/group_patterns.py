"""The regular expressions of one consumer group: when they are matched with the topics.

They are matched when a member brings a new one, when topics came into being, and every
``group.consumer.regex.refresh.interval.ms``; but not more often than every ``MIN_REFRESH_MS``, and one search at a
time. The search goes on in the background, a step with each tick. Until its result is written, members are subscribed
to what was found before.

Source: Kafka's GroupMetadataManager.maybeUpdateRegularExpressions and handleRegularExpressionsResult.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate, PatternChange
from trio_broker.coordinator.consumer.member import ConsumerMember
from trio_broker.coordinator.consumer.records import pattern_tombstone
from trio_broker.coordinator.consumer.topic_patterns import InvalidPattern, PatternResolution, check_pattern
from trio_broker.coordinator.runtime.errors import GroupRequestError

MIN_REFRESH_MS = 10_000
"""Between two searches of one group: a client that subscribes to ever new patterns cannot have one for each."""

MAX_SHOWN_CHARACTERS = 200
"""Of a pattern, in an error message."""


class GroupPatterns:
    """Which search is under way, and whether what was found may be out of date."""

    def __init__(self) -> None:
        self._resolution: PatternResolution | None = None
        self._topics_changed = True
        """Whether topics came since the last search; after a start nobody knows."""

    @property
    def is_resolving(self) -> bool:
        return self._resolution is not None

    def topics_changed(self) -> None:
        self._topics_changed = True

    def forget_resolution(self) -> None:
        """The result could not be written; a heartbeat will begin anew."""
        self._resolution = None
        self._topics_changed = True

    def follow(self, update: ConsumerGroupUpdate, member: ConsumerMember, updated: ConsumerMember) -> PatternChange:
        """Take note of what the member's pattern became, and begin a search if one is due.

        Raises:
            Refused: ``INVALID_REGULAR_EXPRESSION``.
        """
        stored = update.stored
        old, new = member.pattern, updated.pattern
        if old is None and new is None and not stored.pattern_subscribers:
            return PatternChange.NONE
        change = PatternChange.NONE if old == new else PatternChange.UNRESOLVED
        is_unheard_of = old != new and new is not None and stored.pattern_subscribers[new] == 0
        if is_unheard_of:
            _require_valid(new or "")
        if old != new and old is not None and stored.pattern_subscribers[old] == 1:
            update.result.records.append(pattern_tombstone(stored.group_id, old))
        if old != new and (new is None or (not is_unheard_of and new in stored.patterns)):
            change = PatternChange.RESOLVED
        self._begin_if_due(update, old, new)
        return change

    def _begin_if_due(self, update: ConsumerGroupUpdate, old: str | None, new: str | None) -> None:
        stored, now_ms = update.stored, update.now.wall_ms
        if self._resolution is not None:
            return
        refreshed_at_ms = max((pattern.timestamp_ms for pattern in stored.patterns.values()), default=None)
        # A clock that was put back must not put searches off until it has caught up.
        if refreshed_at_ms is not None and refreshed_at_ms <= now_ms <= refreshed_at_ms + MIN_REFRESH_MS:
            return
        wanted = set(stored.pattern_subscribers)
        if old is not None and old != new and stored.pattern_subscribers[old] == 1:
            wanted.discard(old)
        if new is not None:
            wanted.add(new)
        is_old = (
            refreshed_at_ms is None
            or not refreshed_at_ms
            <= now_ms
            <= refreshed_at_ms + update.group.settings.group_consumer_regex_refresh_interval_ms
        )
        if wanted and (is_old or self._topics_changed or not wanted <= stored.patterns.keys()):
            self._resolution = PatternResolution(sorted(wanted), list(update.image.topics), now_ms)
            self._topics_changed = False

    def work(self, update: ConsumerGroupUpdate) -> None:
        """Go on with the search, and write down the result when it has come to its end."""
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
        raise GroupRequestError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
