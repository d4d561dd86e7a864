"""Renders the table of keys as ``docs/config.md``; ``python -m trio_broker.config.documentation`` writes the page.

A test compares the page with the table, so that neither moves without the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from trio_broker.config.config_key import DOUBLE_MAX, INT_MAX, LONG_MAX, ConfigKey
from trio_broker.config.keys import GROUP_KEYS, KEY_GROUPS, TOPIC_KEYS

INTRODUCTION = """\
# Configuration

This page is written by `python -m trio_broker.config.documentation` from the table of keys in `trio_broker/config`.
Names, defaults and limits are Kafka's; a key that is ours says so. A few limits are tighter: pools of threads, since a
digit too many would start thousands; rate and load factor of the log cleaner, which would compact nothing for ever;
`log.retention.ms`, where no number below -1 may stand for "never"; `max.connections` and
`max.connection.creation.rate`, which Kafka takes as 0 at a start, though nobody could connect to raise them; a negative
count in `max.connections.per.ip.overrides`, which would be no limit to a reader and bars the address;
`offset.metadata.max.bytes`, below 0 of which no group can commit; and
`replica.high.watermark.checkpoint.interval.ms`, at 0 of which there would be one checkpoint and then none. Kafka's keys
for what is not here stand under [Without effect here](#without-effect-here): they are taken and kept, and
DescribeConfigs lists them where they are set; the log of a start names those that it was given. A key that is not
listed is unknown: in a file it is ignored with a warning, in the environment, on the command line and in a request it
is refused.

Before each key may stand one listener, by its name in lower case. `listener.name.external.max.connections` and
`listener.name.external.max.connection.creation.rate` hold for the connections of that listener, beside the limits of
the broker, and may be changed live, for one broker or as a default for all; the other keys of a listener are without
effect.

## Where settings come from

From the weakest to the strongest:

1. the built-in default;
2. `server.properties`, given with `--config`;
3. the environment: `num.io.threads` is `TRIO_BROKER_NUM_IO_THREADS`, and in names of listeners `__` stands for `_`, and
   `___` for `-`; a variable that begins so and is no key's and no option's ends the start;
4. the command line: `--override num.io.threads=4`;
5. the dynamic default of the cluster: the broker resource without a name in AlterConfigs;
6. the dynamic value of one broker: the broker resource named by its node id, or the admin page.

Names are merged first and units compared afterwards: `log.retention.ms` from anywhere wins over
`log.retention.minutes`, and that over `log.retention.hours`.

## When they may change

A *read-only* key is read at start. A *cluster-wide* key may be changed live, for one broker or as a default for all.
A Kafka client may at most halve or double the size of a pool by one change, as in Kafka; repeat the change to go
further. The admin page and its API may set any size that the key takes. Changes are checked, then written to the
metadata log, then applied; they outlive a restart.
"""

TOPIC_INTRODUCTION = """\
## Topics

A topic may set these for itself, at creation or later, and a change takes effect at once. Where a topic says nothing,
the broker key in the third column counts.
"""


GROUP_INTRODUCTION = """\
## Groups

A group of the consumer protocol may set these for itself (resource type GROUP), before it exists and while it runs,
within the bounds of the broker's `group.consumer.min.…` and `group.consumer.max.…`. The new values reach a member with
its next heartbeat.
"""


def render() -> str:
    """Return the whole page."""
    sections = [INTRODUCTION]
    sections += [_broker_section(title, keys) for title, keys in KEY_GROUPS.items()]
    sections += [TOPIC_INTRODUCTION + "\n" + _resource_table(TOPIC_KEYS.values())]
    sections += [GROUP_INTRODUCTION + "\n" + _resource_table(GROUP_KEYS.values())]
    return "\n".join(sections)


def _broker_section(title: str, keys: Iterable[ConfigKey]) -> str:
    rows = [
        (
            f"`{key.name}`",
            key.type.name.lower(),
            default_text(key),
            key.valid_values,
            key.update_mode.value,
            key.documentation,
        )
        for key in keys
        if not key.internal
    ]
    return f"## {title}\n\n" + _table(("key", "type", "default", "valid values", "update mode", "meaning"), rows)


def _resource_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (f"`{key.name}`", key.type.name.lower(), _inherited(key), key.valid_values, key.documentation)
        for key in keys
        if not key.internal
    ]
    return _table(("key", "type", "default from", "valid values", "meaning"), rows)


def _inherited(key: ConfigKey) -> str:
    return default_text(key) if key.broker_key is None else f"`{key.broker_key.name}`"


def default_text(key: ConfigKey) -> str:
    """The default of ``key`` as pages write it."""
    if key.inherits_default:
        return "from " + ", ".join(f"`{fallback.key.name}`" for fallback in key.fallbacks)
    if key.default_text is None:
        return "not set"
    if key.default in (INT_MAX, LONG_MAX, DOUBLE_MAX):
        return "no limit"
    return f"`{text}`" if (text := key.text_of(key.default)) else "empty"


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    from pathlib import Path

    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/config.md")
    page.write_text(render(), encoding="utf-8")
