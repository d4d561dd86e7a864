"""Why a group lags: findings with their evidence, and what to do about each.

A pure function of what the broker knows of the group. It says what stands out, the most telling first: a group without
members explains everything after it. A group that keeps up has one finding, which says so.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import attrs

from broker_admin.texts import duration_text, number_text, short_duration_text, shown_text, time_text
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupOffsets,
    GroupRates,
    GroupSnapshot,
    LagTrend,
    MemberSnapshot,
    Rebalance,
    max_known,
)
from trio_broker.coordinator.transactions.transaction_snapshot import HeldBackPartition

KEEPS_UP_SECONDS = 10.0
"""A group that is not further behind keeps up: twice the interval in which clients commit by default."""

MAJOR_SHARE = 0.5
"""A member or partition that has more than this share of the lag stands out."""

SKEW_FACTOR = 2.0
"""A partition with so many times the records of an average one of its topic gets more than its share."""

STOPPED_SECONDS = 60.0
"""Without a commit for so long while records wait, a consumer has stopped committing."""

OFTEN_SECONDS = 600.0
"""The time in which rebalances are counted."""

OFTEN_REBALANCES = 4
"""So many of them in ``OFTEN_SECONDS`` are too many: each stops the members for seconds."""

RESTLESS_REBALANCES = 10
"""So many are worth a look even if the group keeps up: a restart of its members, one after another, makes fewer."""

RESTLESS_SECONDS = 120.0
"""A group whose latest rebalance is longer ago has come to rest."""

STUCK_REBALANCE_SECONDS = 60.0
"""A rebalance that takes longer keeps the members from reading."""

SHOWN_NAME_CHARACTERS = 64


class LagCause(enum.Enum):
    """What makes a group lag, or that nothing does."""

    KEEPS_UP = "keeps up"
    NO_MEMBERS = "no members"
    OFFSETS_EXPIRE = "offsets expire"
    OPEN_TRANSACTION = "open transaction"
    REBALANCING = "rebalancing too often"
    STOPPED_COMMITTING = "stopped committing"
    MISSING_COMMITS = "missing commits"
    SLOW_MEMBER = "slow member"
    SKEWED_PARTITION = "skewed partition"
    UNOWNED_PARTITIONS = "partitions without a member"
    TOO_SLOW = "slower than its producers"
    CATCHING_UP = "catching up"
    BEHIND = "behind"


@attrs.frozen(kw_only=True)
class LagFinding:
    """One thing that was found: a sentence, the numbers it rests on, and what to do (empty if nothing).

    ``member_id``, ``topic`` and ``partition`` say what it is about, where it is about one, and ``transactional_id``
    which transaction holds the partition back, where a coordinator knows it.
    """

    cause: LagCause
    summary: str
    evidence: tuple[str, ...] = ()
    advice: str = ""
    member_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    transactional_id: str | None = None


@attrs.frozen(kw_only=True)
class LagDiagnosis:
    """Why a group lags, the most telling finding first."""

    findings: tuple[LagFinding, ...]


def diagnosis(
    group: GroupSnapshot,
    offsets: GroupOffsets,
    rates: GroupRates | None,
    rebalances: Sequence[Rebalance],
    now_ms: int,
    held_back: Sequence[HeldBackPartition] = (),
) -> LagDiagnosis:
    """What keeps a group from reading all there is, as it is at ``now_ms``.

    ``held_back`` are the partitions whose last stable offset a transaction holds back.
    """
    behind = [each for each in offsets.partitions if each.lag_records]
    findings = missing_commits(group, offsets.partitions)
    if keeps_up(offsets, behind, rates):
        findings = [*restless(rebalances, now_ms), *findings]
        if not findings:
            findings = [LagFinding(cause=LagCause.KEEPS_UP, summary=keeps_up_text(offsets))]
        return LagDiagnosis(findings=(*findings, *offsets_expire(group, offsets.partitions, now_ms)))
    if not group.member_count:
        expire = offsets_expire(group, offsets.partitions, now_ms)
        return LagDiagnosis(findings=(no_members(offsets, behind, now_ms), *expire, *findings))
    waiting = waiting_for_transactions(behind, held_back)
    # What waits for a transaction says nothing of those that read it.
    held = {(lag.topic, lag.partition) for lag, _ in waiting}
    behind = [each for each in behind if (each.topic, each.partition) not in held]
    slow = slow_member_or_partition(group, offsets, behind, now_ms) if behind else []
    # A member that hangs does not commit either: only what the others do says something of the group.
    stuck = [each for each in behind if not slow or each.member_id != slow[0].member_id]
    found = [
        *rebalancing(rebalances, now_ms),
        *open_transaction(waiting),
        *stopped_committing(stuck, now_ms),
        *slow,
        *unowned(group, behind),
        *findings,
    ]
    return LagDiagnosis(findings=(*found, *pace(offsets, rates, is_explained=bool(found))))


def waiting_for_transactions(
    behind: Sequence[ConsumerLag], held_back: Sequence[HeldBackPartition]
) -> list[tuple[ConsumerLag, HeldBackPartition]]:
    """The partitions where all that is committed has been read, and the rest is held back."""
    held = {(each.topic, each.partition): each for each in held_back}
    return [
        (each, found)
        for each in behind
        if (found := held.get((each.topic, each.partition))) is not None
        and each.committed_offset == found.last_stable_offset
    ]


def open_transaction(waiting: Sequence[tuple[ConsumerLag, HeldBackPartition]]) -> list[LagFinding]:
    """The transaction that holds the group back for the longest time."""
    if not waiting:
        return []
    lag, held = max(waiting, key=lambda each: each[1].held_seconds or 0.0)
    name = f"{held.topic}-{held.partition}"
    since = "" if held.held_seconds is None else f", open for {short_duration_text(held.held_seconds)}"
    if held.transactional_id is not None:
        holder = f"the transaction of {shown_text(held.transactional_id, SHOWN_NAME_CHARACTERS)}"
        advice = (
            "The broker aborts it when its timeout is over; its page can abort it now. Look at why its producer does "
            "not end it. Consumers with isolation.level=read_uncommitted do not wait."
        )
    else:
        holder = f"a transaction of producer {held.producer_id}"
        advice = "Look at it on the page of the partition."
        if held.is_hanging:
            holder += " that no coordinator will end"
            advice = "Abort it on the page of the partition."
    others = len(waiting) - 1
    more = f", and {others} more partition{'' if others == 1 else 's'} for such a reason" if others else ""
    return [
        LagFinding(
            cause=LagCause.OPEN_TRANSACTION,
            summary=f"Partition {name} waits for the end of {holder}{since}{more}.",
            evidence=(
                f"all that is committed there has been read, up to offset {number_text(held.last_stable_offset)}",
                f"{number_text(lag.lag_records or 0)} records behind it are held back",
            ),
            advice=advice,
            topic=held.topic,
            partition=held.partition,
            transactional_id=held.transactional_id,
        )
    ]


def keeps_up(offsets: GroupOffsets, behind: Sequence[ConsumerLag], rates: GroupRates | None) -> bool:
    """Whether the group is no further behind than its commits explain."""
    if not behind:
        return True
    if offsets.lag_seconds is not None:
        return offsets.lag_seconds <= KEEPS_UP_SECONDS
    return rates is not None and (offsets.lag_records or 0) <= KEEPS_UP_SECONDS * rates.consumed_per_second


def keeps_up_text(offsets: GroupOffsets) -> str:
    if offsets.lag_records is None:
        return "It has committed nothing yet, and owns no partition."
    if not offsets.lag_records:
        return "It keeps up: every record is consumed and committed."
    records = number_text(offsets.lag_records)
    age = "" if offsets.lag_seconds is None else f", the oldest {short_duration_text(offsets.lag_seconds)} old"
    return f"It keeps up: {records} records behind{age}. That is normal between two commits."


def no_members(offsets: GroupOffsets, behind: Sequence[ConsumerLag], now_ms: int) -> LagFinding:
    return LagFinding(
        cause=LagCause.NO_MEMBERS,
        summary="The group has no members: nothing reads its partitions.",
        evidence=(f"{number_text(offsets.lag_records or 0)} records wait", *last_commit(behind, now_ms)),
        advice="Start its consumers. If it is not needed any more, delete it.",
    )


def offsets_expire(group: GroupSnapshot, partitions: Iterable[ConsumerLag], now_ms: int) -> list[LagFinding]:
    """When the offsets of a group without members begin to be deleted."""
    first_ms = min((each.expires_at_ms for each in partitions if each.expires_at_ms is not None), default=None)
    if first_ms is None or group.member_count:
        return []
    left = duration_text(max(0, first_ms - now_ms) / 1000)
    return [
        LagFinding(
            cause=LagCause.OFFSETS_EXPIRE,
            summary=f"Its offsets are deleted from {time_text(first_ms)} on, in {left}.",
            evidence=("offsets.retention.minutes, a setting of the broker, counts while a group has no members",),
            advice=(
                "Start a consumer before, or set a longer offsets.retention.minutes. Once they are deleted, a consumer "
                "begins where its own setting auto.offset.reset says: with latest it leaves records out."
            ),
        )
    ]


def is_restless(started_at_ms: Sequence[int], now_ms: int) -> bool:
    """Whether a group keeps rebalancing, by when its latest rebalances began, oldest first."""
    recent = [each for each in started_at_ms if now_ms - each <= OFTEN_SECONDS * 1000]
    return len(recent) >= RESTLESS_REBALANCES and now_ms - recent[-1] <= RESTLESS_SECONDS * 1000


def restless(rebalances: Sequence[Rebalance], now_ms: int) -> list[LagFinding]:
    """That a group keeps rebalancing though it keeps up."""
    return rebalancing(rebalances, now_ms) if is_restless([each.started_at_ms for each in rebalances], now_ms) else []


def often_text(rebalances: Sequence[Rebalance]) -> str:
    """How often a group has rebalanced of late: by the minute, where that is once or more."""
    seconds = (rebalances[-1].started_at_ms - rebalances[0].started_at_ms) / 1000
    per_minute = 60 * (len(rebalances) - 1) / seconds if seconds > 0 else 0.0
    if per_minute >= 1:
        return f"{round(per_minute)} times a minute"
    return f"{len(rebalances)} times in the last {short_duration_text(OFTEN_SECONDS)}"


def rebalancing(rebalances: Sequence[Rebalance], now_ms: int) -> list[LagFinding]:
    """A rebalance that does not end, or too many of them."""
    recent = [each for each in rebalances if now_ms - each.started_at_ms <= OFTEN_SECONDS * 1000]
    advice = (
        "See below who made it rebalance. Members that time out: raise session.timeout.ms or max.poll.interval.ms, or "
        "process fewer records in a poll. Members that come and go: find out what restarts them, or give them a "
        "group.instance.id."
    )
    if rebalances and rebalances[-1].ended_at_ms is None:
        seconds = (now_ms - rebalances[-1].started_at_ms) / 1000
        if seconds >= STUCK_REBALANCE_SECONDS:
            text = f"It has been rebalancing for {short_duration_text(seconds)}, and its members wait."
            return [LagFinding(cause=LagCause.REBALANCING, summary=text, evidence=causes_of(recent), advice=advice)]
    if len(recent) < OFTEN_REBALANCES:
        return []
    waited = sum(each.duration_ms or 0 for each in recent) / 1000
    return [
        LagFinding(
            cause=LagCause.REBALANCING,
            summary=f"It rebalances too often: {often_text(recent)}.",
            evidence=(f"members waited for {short_duration_text(waited)} in all", *causes_of(recent)),
            advice=advice,
        )
    ]


def causes_of(rebalances: Iterable[Rebalance]) -> tuple[str, ...]:
    """The commonest causes of rebalances, in words."""
    counts: dict[str, int] = {}
    for rebalance in rebalances:
        for cause in rebalance.causes:
            counts[cause.kind.value] = counts.get(cause.kind.value, 0) + 1
    commonest = sorted(counts, key=lambda kind: -counts[kind])[:3]
    return tuple(f"{counts[kind]} × {kind}" for kind in commonest)


def stopped_committing(behind: Sequence[ConsumerLag], now_ms: int) -> list[LagFinding]:
    """No partition that is behind has a recent commit."""
    if not behind:
        return []
    newest_ms = max(each.committed_at_ms or 0 for each in behind)
    waited = min((each.lag_seconds for each in behind if each.lag_seconds is not None), default=STOPPED_SECONDS)
    # A record that has just come has not been waited for, however old the last commit is.
    if (now_ms - newest_ms) / 1000 < STOPPED_SECONDS or waited < STOPPED_SECONDS:
        return []
    return [
        LagFinding(
            cause=LagCause.STOPPED_COMMITTING,
            summary="It has members, but has stopped committing where records wait.",
            evidence=last_commit(behind, now_ms),
            advice=(
                "Either its members do not process any more (a record that fails each time, a call that hangs), or "
                "they process and do not commit: look at enable.auto.commit, and at their logs."
            ),
        )
    ]


def last_commit(partitions: Iterable[ConsumerLag], now_ms: int) -> tuple[str, ...]:
    newest_ms = max((each.committed_at_ms for each in partitions if each.committed_at_ms is not None), default=None)
    if newest_ms is None:
        return ()
    return (f"the last commit was {short_duration_text(max(0, now_ms - newest_ms) / 1000)} ago",)


def slow_member_or_partition(
    group: GroupSnapshot, offsets: GroupOffsets, behind: Sequence[ConsumerLag], now_ms: int
) -> list[LagFinding]:
    """The one partition or member that has most of the lag, if one of several has."""
    total = offsets.lag_records or 0
    worst = max(behind, key=lambda each: each.lag_records or 0)
    topic = [each for each in offsets.partitions if each.topic == worst.topic]
    if (worst.lag_records or 0) > MAJOR_SHARE * total and is_skewed(worst, topic):
        return [skewed_partition(worst, topic, total)]
    by_member: dict[str, list[ConsumerLag]] = {}
    for each in behind:
        if each.member_id is not None:
            by_member.setdefault(each.member_id, []).append(each)
    members = {member.member_id: member for member in group.members}
    lags = {member_id: lag_of(owned) for member_id, owned in by_member.items() if member_id in members}
    slowest = max(lags, key=lambda member_id: lags[member_id], default=None)
    if slowest is None or group.member_count <= 1 or lags[slowest] <= MAJOR_SHARE * total:
        return []
    return [slow_member(members[slowest], by_member[slowest], lags[slowest], offsets, group.member_count, now_ms)]


def lag_of(partitions: Iterable[ConsumerLag]) -> int:
    return sum(each.lag_records or 0 for each in partitions)


def is_skewed(partition: ConsumerLag, topic: Sequence[ConsumerLag]) -> bool:
    """Whether a partition has far more records than the others of its topic."""
    others = [each.log_end_offset or 0 for each in topic if each is not partition]
    return bool(others) and (partition.log_end_offset or 0) > SKEW_FACTOR * max(1.0, sum(others) / len(others))


def skewed_partition(partition: ConsumerLag, topic: Sequence[ConsumerLag], total: int) -> LagFinding:
    others = [each.log_end_offset or 0 for each in topic if each is not partition]
    name = f"{partition.topic}-{partition.partition}"
    return LagFinding(
        cause=LagCause.SKEWED_PARTITION,
        summary=f"Partition {name} has {percent(partition.lag_records or 0, total)} of the lag, and gets far more "
        "records than the others.",
        evidence=(
            f"it ends at offset {number_text(partition.log_end_offset or 0)}, the others of its topic on average at "
            f"{number_text(round(sum(others) / len(others)))}",
            f"its lag is {number_text(partition.lag_records or 0)} of {number_text(total)} records",
        ),
        advice="Only one member can read a partition. Choose keys that spread the records, or none.",
        member_id=partition.member_id,
        topic=partition.topic,
        partition=partition.partition,
    )


def slow_member(
    member: MemberSnapshot,
    behind: Sequence[ConsumerLag],
    lag: int,
    offsets: GroupOffsets,
    member_count: int,
    now_ms: int,
) -> LagFinding:
    name = member_name(member)
    owned = [each for each in offsets.partitions if each.member_id == member.member_id]
    others = [each for each in offsets.partitions if each.member_id not in (None, member.member_id)]
    others_text = f"the other {member_count - 1} members are" if member_count > 2 else "the other member is"
    evidence = [
        f"{name} is {number_text(lag)} of {number_text(offsets.lag_records or 0)} records behind, on "
        f"{len(behind)} of its {len(owned)} partitions",
        f"{others_text} {number_text(lag_of(others))} records behind",
    ]
    if (seconds := max_known(each.lag_seconds for each in behind)) is not None:
        evidence.append(f"its oldest record waits for {short_duration_text(seconds)}")
    share = len(owned) / max(1, len(owned) + len(others))
    if share > MAJOR_SHARE and member_count > 1:
        evidence.append(f"it owns {len(owned)} of {len(owned) + len(others)} partitions")
    return LagFinding(
        cause=LagCause.SLOW_MEMBER,
        summary=f"Member {name} is slow: it has {percent(lag, offsets.lag_records or 0)} of the lag.",
        evidence=(*evidence, *(f"{text}, by this member" for text in last_commit(owned, now_ms))),
        advice=f"Look at what it does at {shown_text(member.client_host.removeprefix('/'), SHOWN_NAME_CHARACTERS)}: "
        "its CPU, its calls to other systems, its pauses. The others keep up.",
        member_id=member.member_id,
    )


def member_name(member: MemberSnapshot) -> str:
    """A member as people call it; text of clients, made fit to be shown."""
    name = member.group_instance_id or member.client_id or member.member_id
    return shown_text(name, SHOWN_NAME_CHARACTERS)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f}\u00a0%"


def unowned(group: GroupSnapshot, behind: Sequence[ConsumerLag]) -> list[LagFinding]:
    """Partitions with lag that no member reads: of topics that nobody subscribes to any more."""
    if any(member.assignment is None for member in group.members):
        return []
    idle = [each for each in behind if each.member_id is None]
    if not idle or lag_of(idle) <= MAJOR_SHARE * lag_of(behind):
        return []
    topics = sorted({each.topic for each in idle})
    return [
        LagFinding(
            cause=LagCause.UNOWNED_PARTITIONS,
            summary=f"No member reads {len(idle)} of the {len(behind)} partitions that are behind.",
            evidence=(f"they are of {', '.join(topics[:3])}{' and others' if len(topics) > 3 else ''}",),
            advice="Either a rebalance is under way, or the members are not subscribed to these topics any more: then "
            "delete the offsets.",
            topic=topics[0] if len(topics) == 1 else None,
        )
    ]


def missing_commits(group: GroupSnapshot, partitions: Sequence[ConsumerLag]) -> list[LagFinding]:
    """Partitions that members own without ever having committed, so that their lag is unknown."""
    missing = [each for each in partitions if each.committed_offset is None and each.log_end_offset]
    if not missing or not group.member_count:
        return []
    by_topic: Mapping[str, int] = {
        topic: sum(each.topic == topic for each in missing) for topic in sorted({each.topic for each in missing})[:3]
    }
    return [
        LagFinding(
            cause=LagCause.MISSING_COMMITS,
            summary=f"Nothing is committed in {len(missing)} of {len(partitions)} partitions; the lag there is unknown "
            "and not in the sum.",
            evidence=tuple(f"{count} of {topic}" for topic, count in by_topic.items()),
            advice="Members that have just started commit after their first records. If it stays so, they do not "
            "commit: look at enable.auto.commit. After a restart they would begin where auto.offset.reset says.",
        )
    ]


def pace(offsets: GroupOffsets, rates: GroupRates | None, *, is_explained: bool) -> list[LagFinding]:
    """How the lag develops, where that says something; always one finding if nothing else was found."""
    if rates is None:
        if is_explained:
            return []
        text = "It is behind, and was not watched for long enough to say why."
        return [LagFinding(cause=LagCause.BEHIND, summary=text, evidence=(lag_text(offsets),))]
    evidence = (
        lag_text(offsets),
        f"{number_text(round(rates.produced_per_second))} records/s are produced, "
        f"{number_text(round(rates.consumed_per_second))} records/s consumed",
    )
    if rates.trend is LagTrend.SHRINKING and rates.catches_up_in_seconds is not None:
        text = f"It catches up in {short_duration_text(rates.catches_up_in_seconds)} if both rates stay as they are."
        return [LagFinding(cause=LagCause.CATCHING_UP, summary=text, evidence=evidence)]
    if rates.trend is LagTrend.GROWING:
        advice = "" if is_explained else "Add members, up to one for each partition, or make processing faster."
        text = "It reads more slowly than its producers write; at this rate it never catches up."
        return [LagFinding(cause=LagCause.TOO_SLOW, summary=text, evidence=evidence, advice=advice)]
    if is_explained:
        return []
    text = "It reads as fast as its producers write, and stays as far behind as it is; it never catches up so."
    return [LagFinding(cause=LagCause.BEHIND, summary=text, evidence=evidence)]


def lag_text(offsets: GroupOffsets) -> str:
    text = f"{number_text(offsets.lag_records or 0)} records behind"
    return text if offsets.lag_seconds is None else f"{text}, {short_duration_text(offsets.lag_seconds)}"
