"""The list of changes: which part of it is wanted, and how a change reads in words. Pure functions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import attrs

from broker_admin.listing import ListQuery, Page, ordered_by, take_page
from broker_admin.schemas import bounded
from broker_admin.texts import bytes_text, iso_time, short_duration_text
from trio_broker.changes.change import (
    Change,
    ChangeAction,
    ChangeChannel,
    ChangedResource,
    ChangeOrigin,
    ReadingUnit,
    Trial,
    TrialOutcome,
    relative_band_text,
)
from trio_broker.common.escaping import escape_formula
from trio_broker.config.entries import ValueChange

ANY = ""
"""What a filter holds that lets everything through."""


def any_of(members: type[ChangeAction] | type[ChangedResource] | type[ChangeChannel]) -> str:
    """A filter by one of ``members``."""
    words: str = bounded(ANY, enum=[ANY, *(member.value for member in members)])
    return words


@attrs.frozen(kw_only=True)
class ChangesQuery(ListQuery):
    """Which changes are wanted; ``search`` looks through names, values and clients."""

    order: str = ordered_by("-number", ["number"])
    action: str = any_of(ChangeAction)
    resource_type: str = any_of(ChangedResource)
    resource: str = ""
    channel: str = any_of(ChangeChannel)


def select_changes(changes: Sequence[Change], query: ChangesQuery) -> Page[Change]:
    """The part of the list that ``query`` asks for.

    Raises:
        Problem: 400, the cursor is not one of this list.
    """
    chosen = [change for change in changes if is_wanted(change, query)]
    return take_page(
        chosen,
        query,
        id_of=lambda change: str(change.number),
        columns={"number": lambda change: change.number},
        search_text=search_text,
    )


CSV_COLUMNS = (
    *("number", "changed_at", "action", "resource_type", "resource", "name", "old", "new"),
    *("channel", "client", "role", "principal", "address", "request", "trial", "undoes", "effect"),
)


def changes_csv(changes: Iterable[Change]) -> str:
    """The changes as CSV with a line of names: a line for each value, or one where there is none."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for change in changes:
        origin = change.origin
        ends = (
            *(origin.channel.value, escape_formula(origin.client), origin.role, escape_formula(origin.principal)),
            origin.address,
            escape_formula(origin.request),
            change.trial.outcome.value if change.trial else "",
            "" if change.undoes is None else change.undoes,
            change.effect.verdict.value if change.effect else "",
        )
        starts = (change.number, iso_time(change.changed_at_ms), change.action.value, change.resource_type.value)
        for value in (*change.values, *change.shadowed_values) or (ValueChange("", None, None),):
            texts = (change.resource, value.name, value.old or "", value.new or "")
            writer.writerow((*starts, *map(escape_formula, texts), *ends))
    return out.getvalue()


def is_wanted(change: Change, query: ChangesQuery) -> bool:
    return (
        query.action in (ANY, change.action.value)
        and query.resource_type in (ANY, change.resource_type.value)
        and query.channel in (ANY, change.origin.channel.value)
        and query.resource in (ANY, change.resource)
    )


def search_text(change: Change) -> str:
    values = (
        f"{value.name} {value.old or ''} {value.new or ''}" for value in (*change.values, *change.shadowed_values)
    )
    origin = change.origin
    who = (origin.client, origin.role, origin.principal, origin.address, origin.request)
    return " ".join((change.action.value, change.resource, *who, *values))


def running_trial(changes: Sequence[Change]) -> Change | None:
    """The change that is on trial now."""
    return next((each for each in reversed(changes) if each.trial and each.trial.outcome is TrialOutcome.RUNNING), None)


# --- in words ---

ACTION_TITLES = {
    ChangeAction.CONFIG: "changed",
    ChangeAction.STARTED: "started with other settings:",
    ChangeAction.CREATED: "created",
    ChangeAction.DELETED: "deleted",
    ChangeAction.PARTITIONS_ADDED: "partitions added to",
    ChangeAction.RECORDS_DELETED: "records deleted of",
    ChangeAction.OFFSETS_RESET: "offsets set of",
    ChangeAction.OFFSETS_DELETED: "offsets deleted of",
    ChangeAction.ABORTED: "aborted",
}

CHANNEL_TITLES = {
    ChangeChannel.PAGE: "a page of this site",
    ChangeChannel.HTTP: "HTTP",
    ChangeChannel.KAFKA: "Kafka's protocol",
    ChangeChannel.START: "the start of the broker",
    ChangeChannel.BROKER: "the broker itself",
    ChangeChannel.DECLARATION: "the declaration of a start",
}

TRIAL_TITLES = {
    TrialOutcome.RUNNING: "on trial",
    TrialOutcome.KEPT: "tried and kept",
    TrialOutcome.UNDONE: "tried and reverted",
    TrialOutcome.CANCELLED: "ended by another change",
    TrialOutcome.REPLACED: "tried, and changed for good meanwhile",
}


def change_title(change: Change) -> str:
    """What was done, in a few words."""
    if change.resource_type is ChangedResource.CLUSTER:
        return f"{ACTION_TITLES[change.action]} all brokers"
    if change.resource_type is ChangedResource.BROKER_LOGGER:
        return f"changed log levels of broker {change.resource}"
    return f"{ACTION_TITLES[change.action]} {change.resource_type.value} {change.resource}"


def change_author(change: Change) -> str:
    """Which client did it, from where and how."""
    return origin_text(change.origin)


def origin_text(origin: ChangeOrigin) -> str:
    """A client, where it is, and how it came."""
    login = f"{origin.role or origin.principal}: " if origin.role or origin.principal else ""
    address = f" from {origin.address}" if origin.address else ""
    channel = CHANNEL_TITLES[origin.channel]
    if origin.channel in (ChangeChannel.HTTP, ChangeChannel.KAFKA):
        return f"{login}{origin.client or 'a client'}{address} over {channel}"
    if origin.channel is ChangeChannel.DECLARATION:
        return f"{channel}, {origin.request}"
    return f"{login}{channel}{address}"


def trial_text(trial: Trial) -> str:
    """How a trial stands, and who ended it."""
    if trial.pairs and trial.outcome in (TrialOutcome.RUNNING, TrialOutcome.UNDONE):
        doing = "comparing" if trial.outcome is TrialOutcome.RUNNING else "compared"
        return f"{doing} old and new {trial.pairs} times, {trial.seconds} s each"
    if trial.outcome is TrialOutcome.UNDONE and trial.ended_by and trial.ended_by.channel is ChangeChannel.BROKER:
        return "trial expired, reverted"
    return TRIAL_TITLES[trial.outcome] + (f" by {origin_text(trial.ended_by)}" if trial.ended_by else "")


MAX_SHOWN_MS = 10_000
"""Longer times are shown in seconds."""


def reading_text(value: float | None, unit: ReadingUnit) -> str:
    """A reading of an effect, or one behind the verdict on what limits the broker."""
    if value is None:
        return "–"
    match unit:
        case ReadingUnit.RATIO:
            return f"{100 * value:.0f} %"
        case ReadingUnit.SECONDS:
            return f"{1000 * value:.1f} ms"
        case ReadingUnit.MILLISECONDS:
            return f"{value:.1f} ms" if value < MAX_SHOWN_MS else short_duration_text(value / 1000)
        case ReadingUnit.BYTES:
            return bytes_text(value)
        case ReadingUnit.BYTES_PER_SECOND:
            return f"{bytes_text(value)}/s"
        case ReadingUnit.RECORDS_PER_SECOND | ReadingUnit.PER_SECOND:
            return f"{value:.0f} /s"
        case ReadingUnit.COUNT:
            return f"{value:.1f}"


def difference_text(value: float | None, unit: ReadingUnit) -> str:
    """The difference of a reading; of a share of time in points."""
    if value is None:
        return "–"
    kind = "points" if unit is ReadingUnit.RATIO else "%"
    return f"{100 * value:+.0f} {kind}".replace("-", "−")


def band_text(value: float | None, unit: ReadingUnit) -> str:
    """What a reading differs by by itself, to either side."""
    if value is None or unit is ReadingUnit.RATIO:
        return difference_text(value, unit).replace("+", "± ")
    return relative_band_text(value)


WORDS = {
    "change_title": change_title,
    "change_author": change_author,
    "trial_text": trial_text,
}
"""What the templates say of a change with."""
