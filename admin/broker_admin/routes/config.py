"""``/api/v1/config``: read every config key, change some.

GET answers an object ``configs`` of key → entry. PATCH takes a JSON object of key → value, where a value is a string,
a number or a boolean, and null resets the key to the level below. Sizes and durations may have a suffix: ``"64 MiB"``.
``level`` says whether the values are this broker's or the cluster's defaults. A change is made as a whole or not at
all; the answer shows what it does to each key, the entries as they are now, and which settings changed. A refused
key is pointed at: ``/node.id``. ``/api/v1/config/{key}`` is about one key, with ``{"value": …}`` for a change. Below
the address of a broker the same is about that one, whichever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.config_changes import ConfigChanges, Configs, ConfigValue, plain_texts, read_config_changes
from broker_admin.encoding import mask_changes, mask_differences, mask_entry, sensitive_keys
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, body_pointer
from broker_admin.request_body import ChangeQuery, caller_name, read_change
from broker_admin.requirements import is_about_access, of_cluster, require_role, requires
from broker_admin.responses import json_response
from broker_admin.routing import NodeRoute, Route
from broker_admin.schemas import bounded
from broker_admin.structuring import shown
from broker_admin.tokens import Role
from broker_admin.view import ClusterView
from broker_admin.views.cluster.config import SettingChange
from trio_broker.changes.change import MAX_COMPARED_SECONDS, MAX_TRIAL_SECONDS, MIN_TRIAL_SECONDS
from trio_broker.config.config_key import ConfigUnit
from trio_broker.config.entries import ConfigDifference, ConfigEntry, ConfigScope
from trio_broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS


@attrs.frozen
class ConfigChangeQuery(ChangeQuery):
    """The query of a change: at which level it is made, whether it is, and for how long.

    With ``try_seconds`` the change is taken back after so many seconds unless ``POST /api/v1/changes/{number}:keep``
    comes, and by a stop of the broker. With ``compare_seconds`` the old and the new values are in effect in turn, three
    times for so many seconds each; any other change of settings ends that.
    """

    level: ConfigScope = ConfigScope.BROKER
    try_seconds: int | None = bounded(None, minimum=MIN_TRIAL_SECONDS, maximum=MAX_TRIAL_SECONDS)
    compare_seconds: int | None = bounded(None, minimum=MIN_TRIAL_SECONDS, maximum=MAX_COMPARED_SECONDS)


@attrs.frozen
class NewConfigValue:
    """The body of a change of one key."""

    value: ConfigValue


@attrs.frozen
class ChangedConfigs:
    """What a change does to each key that it named, the keys as they are now, and the settings that changed.

    After a dry run the keys are as they were, and no setting changed.
    """

    differences: Sequence[ConfigDifference]
    configs: Mapping[str, ConfigEntry]
    changes: Sequence[SettingChange]


class ConfigEndpoint(HTTPEndpoint):
    """Both methods of the one address, so that a third one is answered with the names of both."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
    @operation(Configs)
    async def get(self, request: Request) -> Response:
        """Every config key: value, source, synonyms, update mode, default, type and help."""
        entries = cluster_of(request).config.entries()
        return json_response(Configs({entry.name: mask_entry(entry) for entry in entries}))

    @requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER_CONFIGS))
    @operation(
        ChangedConfigs,
        query=ConfigChangeQuery,
        body=ConfigChanges,
        is_change=True,
        problems={422: "a key is refused; nothing was changed"},
    )
    async def patch(self, request: Request) -> Response:
        """Change or reset config keys, all of them or none."""
        query = query_of(request, ConfigChangeQuery)
        changes = await read_config_changes(request)
        units = cluster_of(request).config.units(changes)
        return json_response(await apply_changes(request, changes, units, query, lambda key: body_pointer(key)))


class ConfigKeyEndpoint(HTTPEndpoint):
    """One config key."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
    @operation(ConfigEntry, problems={404: "no such key"})
    async def get(self, request: Request) -> Response:
        """One config key."""
        name = request.path_params["key"]
        if (entry := cluster_of(request).config.entry(name)) is None:
            raise no_such_key(name)
        return json_response(mask_entry(entry))

    @requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER_CONFIGS))
    @operation(
        ChangedConfigs, query=ConfigChangeQuery, body=NewConfigValue, is_change=True, problems={404: "no such key"}
    )
    async def patch(self, request: Request) -> Response:
        """Change or reset one config key."""
        query, name = query_of(request, ConfigChangeQuery), request.path_params["key"]
        if not (units := cluster_of(request).config.units([name])):
            raise no_such_key(name)
        changes = {name: (await read_change(request, NewConfigValue)).value}
        return json_response(await apply_changes(request, changes, units, query, lambda _: body_pointer("value")))


def no_such_key(name: str) -> Problem:
    """The key in the address does not exist."""
    return Problem(404, f"this broker has no key {shown(name)}")


async def apply_changes(
    request: Request,
    changes: ConfigChanges,
    units: Mapping[str, ConfigUnit | None],
    query: ConfigChangeQuery,
    pointer: Callable[[str], str],
) -> ChangedConfigs:
    """Have the broker make ``changes`` of keys with these ``units``; ``pointer`` points at the value of a key.

    Raises:
        Problem: 422, with an error for each key that is refused.
    """
    if any(is_about_access(key) for key in changes):
        require_role(request, Role.ADMIN)
    cluster = cluster_of(request)
    texts, reasons = plain_texts(changes, units)
    result = await cluster.config.change(
        texts,
        changed_by=caller_name(request),
        level=query.level,
        dry_run=query.dry_run,
        try_seconds=query.try_seconds,
        compare_seconds=query.compare_seconds,
    )
    if result.refusals:
        # What is wrong with several keys together, or with one that was not named, is pointed at as the whole body.
        errors = [
            FieldError(
                pointer(each.key) if each.key in changes else each.key if each.key.startswith("?") else "",
                reasons.get(each.key, each.reason),
            )
            for each in result.refusals
        ]
        raise Problem.of_errors(422, errors)
    entries = entries_of(cluster, changes)
    return ChangedConfigs(
        mask_differences(result.differences, sensitive_keys(entries)),
        {entry.name: mask_entry(entry) for entry in entries},
        mask_changes(result.changes, sensitive_keys(entries)),
    )


def entries_of(cluster: ClusterView, names: Iterable[str]) -> list[ConfigEntry]:
    """The entries of those of ``names`` that are keys: to describe all keys takes longer than to change one."""
    return [entry for name in names if (entry := cluster.config.entry(name)) is not None]


ROUTES = [
    Route("/api/v1/config", ConfigEndpoint),
    Route("/api/v1/config/{key}", ConfigKeyEndpoint),
    NodeRoute(NODE_API + "/config", ConfigEndpoint),
    NodeRoute(NODE_API + "/config/{key}", ConfigKeyEndpoint),
]
