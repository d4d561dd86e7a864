"""The deadline of a request, and further attempts until then: ``retry`` repeats a call that raises a retriable error,
``attempts`` is the loop of a call whose result says whether to repeat it.

Pauses double from 0.1 s to 1 s, the defaults of ``retry.backoff.ms`` and ``retry.backoff.max.ms`` in Kafka's clients
(KIP-580, without its random jitter).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import attrs

T = TypeVar("T")

MISSING_ROUNDS: Final = 5
"""After so many failures in a row, about 1.5 s, that report a topic missing it counts as deleted. A broker that has
just started, or has not learnt of a new topic yet, reports a topic missing for a moment."""

FIRST_PAUSE_SECONDS: Final = 0.1
"""Kafka's default of ``retry.backoff.ms``: an election often takes less, and a user does not notice the pause."""

LONGEST_PAUSE_SECONDS: Final = 1.0
"""Kafka's default of ``retry.backoff.max.ms``. A longer pause would only delay the command."""

SHORTEST_PAUSE_SECONDS: Final = 0.01
"""The pause if the setting is 0. Without any, a broker that refuses immediately would be asked in a busy loop."""

SHORTEST_ATTEMPT_SECONDS: Final = 0.1
"""What has to be left of a deadline for another attempt. One with less would end by its own timeout on a busy machine,
and that error take the place of the one that was the reason."""


@attrs.frozen
class Deadline:
    """The time at which to give up, in seconds of the clock ``now``. Tests replace ``now`` and ``sleep``."""

    timeout_seconds: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    ends_at: float = attrs.field(init=False)

    def restarted(self) -> Deadline:
        """Return the deadline of another request, which may take as long."""
        return Deadline(self.timeout_seconds, self.now, self.sleep)

    def within(self, seconds: float) -> Deadline:
        """Return the deadline of one attempt that may take ``seconds``, or what is left if that is less."""
        return Deadline(min(seconds, self.remaining_seconds), self.now, self.sleep)

    def __attrs_post_init__(self) -> None:
        # An assignment would raise, since the class is frozen; the field never changes after this.
        object.__setattr__(self, "ends_at", self.now() + self.timeout_seconds)

    @property
    def remaining_seconds(self) -> float:
        """The seconds that are left, never below zero."""
        return max(0.0, self.ends_at - self.now())

    @property
    def remaining_ms(self) -> int:
        """The milliseconds that are left, for a request's timeout field; at least 1, as 0 leaves the broker no time."""
        return max(1, int(self.remaining_seconds * 1000))

    def pause(self, seconds: float) -> bool:
        """Sleep and return True, or return False without sleeping if no time would be left for an attempt."""
        if seconds + SHORTEST_ATTEMPT_SECONDS >= self.remaining_seconds:
            return False
        self.sleep(seconds)
        return True


def pauses(
    first_seconds: float = FIRST_PAUSE_SECONDS, longest_seconds: float = LONGEST_PAUSE_SECONDS
) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end."""
    seconds = first_seconds
    while True:
        yield min(seconds, longest_seconds)
        seconds = min(2 * seconds, longest_seconds)


def attempts(deadline: Deadline, waits: Iterable[float] | None = None) -> Iterator[None]:
    """Yield before each attempt: at once, then after each of ``waits``, until the next one would end too late.

    Without ``waits`` the pauses are those of ``pauses``.
    """
    yield
    for seconds in pauses() if waits is None else waits:
        if not deadline.pause(seconds):
            return
        yield


def retry(
    ask: Callable[[], T],
    deadline: Deadline,
    is_retriable: Callable[[Exception], bool],
    before_retry: Callable[[Exception], object] = lambda _: None,
    waits: Iterable[float] | None = None,
) -> T:
    """Return what ``ask`` returns, which is called again after a retriable error; the pauses as for ``attempts``.

    ``before_retry`` receives the error, to drop what it has made out of date; after the last attempt, too.

    Raises:
        Exception: the last error of ``ask``, when it is not retriable, or no further attempt would be in time.
    """
    failure: Exception | None = None
    for _ in attempts(deadline, waits):
        try:
            return ask()
        except Exception as error:
            if not is_retriable(error):
                raise
            before_retry(error)
            failure = error
    assert failure is not None, "the first attempt is always made"
    raise failure


class RetryDeadline:
    """How long to repeat a request without progress: a deadline that ``renew`` restarts, and pauses that grow.

    For a reader, which ``retry`` does not serve: each answer may bring some partitions on and refuse others.

    Tests replace ``now`` and ``sleep``, which are in seconds.
    """

    def __init__(
        self,
        seconds: float,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self._first_pause_seconds = max(SHORTEST_PAUSE_SECONDS, first_pause_seconds)
        self._longest_pause_seconds = max(SHORTEST_PAUSE_SECONDS, longest_pause_seconds)
        self._now = now
        self._sleep = sleep
        self.renew()

    def renew(self) -> None:
        """Restart the deadline and the pauses: there was progress, or the first attempt is about to begin."""
        self._deadline = self.within(self.seconds)
        self._pauses = pauses(self._first_pause_seconds, self._longest_pause_seconds)

    def pause(self) -> bool:
        """Sleep, each time for longer, and return True; or return False at once if the deadline is too near."""
        return self._deadline.pause(next(self._pauses))

    def left_for(self, seconds: float) -> Deadline:
        """Return the deadline of a request that may take ``seconds``, or what is left if that is less."""
        return self.within(min(seconds, self._deadline.remaining_seconds))

    def within(self, seconds: float) -> Deadline:
        """Return a deadline by the same clock."""
        return Deadline(seconds, now=self._now, sleep=self._sleep)
