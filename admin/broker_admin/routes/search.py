"""``/api/v1/search``: topics, groups, transactional ids, clients, config keys and pages by a part of their name, for
the search of every page.

A name that begins with what is typed comes before one that has it inside, a short one before a long one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import state_of
from broker_admin.group_actions import LINKED_CHARACTERS, group_address
from broker_admin.navigation import NavigationEntry, at_one_broker
from broker_admin.node_addresses import NODE_PAGES, at_broker
from broker_admin.operations import operation, query_of
from broker_admin.requirements import in_handler, may, requires, visible
from broker_admin.responses import json_response
from broker_admin.routing import Route
from broker_admin.schemas import bounded
from broker_admin.texts import shown_text
from broker_admin.tokens import Role
from broker_admin.transaction_texts import transaction_address
from broker_admin.visible import visible_groups, visible_transactions
from trio_broker.config.entries import ConfigEntry
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionSnapshot
from trio_broker.handlers.support.rights import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
)

MAX_HITS = 20
"""As many as are seen at once; who wants others types more."""

MAX_QUERY_LENGTH = 1000
"""Longer than any name that is typed."""


@attrs.frozen
class SearchQuery:
    """``q`` is a part of a name, whatever its case."""

    q: str = bounded(minLength=1, maxLength=MAX_QUERY_LENGTH)


@attrs.frozen
class SearchHit:
    """What was found: its ``kind``, its name, the page that shows it, and a few words about it."""

    kind: str
    title: str
    address: str
    detail: str


@attrs.frozen
class SearchHits:
    """What was found, best first."""

    items: tuple[SearchHit, ...]


@requires(
    Role.VIEWER,
    in_handler(
        DESCRIBE_TOPIC,
        DESCRIBE_GROUP,
        DESCRIBE_TRANSACTIONAL_ID,
        DESCRIBE_CLUSTER,
        DESCRIBE_CLUSTER_CONFIGS,
        note="left out",
    ),
)
@operation(SearchHits, query=SearchQuery)
async def search(request: Request) -> Response:
    """Topics, groups, transactional ids, clients, config keys and pages whose name has ``q`` in it."""
    state = state_of(request)
    wanted = query_of(request, SearchQuery).q.casefold()
    report, transactions = await visible_groups(request), await visible_transactions(request)
    shows_clients = may(request, DESCRIBE_CLUSTER)
    connections = await state.node.clients.connections() if shows_clients else ()
    searched = Searched(
        navigation=at_one_broker(state.navigation, state.broker_id),
        client_page=at_broker(NODE_PAGES + "/clients/client", state.broker_id),
        topics=await visible(request, DESCRIBE_TOPIC, state.cluster.topics.names(), lambda name: name),
        groups=tuple(lag.group for lag in report.groups),
        transactions=transactions.transactions,
        clients=Counter(connection.client_id for connection in connections),
        config_entries=state.cluster.config.entries() if may(request, DESCRIBE_CLUSTER_CONFIGS) else (),
    )
    return json_response(await trio.to_thread.run_sync(searched.best_hits, wanted))


@attrs.frozen
class Searched:
    """What there is to be found now; kinds without a page are left out. Searched in a worker thread."""

    navigation: Sequence[NavigationEntry]
    topics: Sequence[str]
    groups: Sequence[GroupSnapshot]
    transactions: Sequence[TransactionSnapshot]
    clients: Mapping[str, int]
    client_page: str
    config_entries: Sequence[ConfigEntry]

    def best_hits(self, wanted: str) -> SearchHits:
        """The first of those that have ``wanted`` in their name."""
        found = [(rank(hit.title, wanted), hit) for hit in self.hits(wanted)]
        found.sort(key=lambda each: each[0])
        hits = [attrs.evolve(hit, title=shown_text(hit.title, MAX_QUERY_LENGTH)) for _, hit in found[:MAX_HITS]]
        return SearchHits(tuple(hits))

    def hits(self, wanted: str) -> Iterator[SearchHit]:
        pages = {entry.here for entry in self.navigation}
        for entry in self.navigation:
            if wanted in entry.title.casefold():
                yield SearchHit("page", entry.title, entry.path, f"g {entry.key}")
        if "topics" in pages:
            for name in self.topics:
                if wanted in name.casefold():
                    yield SearchHit("topic", name, f"/topics/{quote(name, safe='')}", "")
        if "config" in pages:
            for key in self.config_entries:
                if wanted in key.name:
                    yield SearchHit(
                        "config", key.name, f"/config?key={quote(key.name, safe='')}", key.update_mode.value
                    )
        if "clients" in pages:
            for client_id, connections in self.clients.items():
                if wanted in client_id.casefold() and len(client_id) <= LINKED_CHARACTERS:
                    address = f"{self.client_page}?client_id={quote(client_id, safe='')}"
                    yield SearchHit("client", client_id, address, f"connections: {connections}")
        for group in self.groups:
            if wanted in group.group_id.casefold() and len(group.group_id) <= LINKED_CHARACTERS:
                yield SearchHit("group", group.group_id, group_address(group.group_id), group.state)
        for each in self.transactions:
            name = each.transactional_id
            if wanted in name.casefold() and len(name) <= LINKED_CHARACTERS:
                yield SearchHit("transaction", name, transaction_address(name), each.state)


def rank(name: str, wanted: str) -> tuple[bool, int, str]:
    return not name.casefold().startswith(wanted), len(name), name


ROUTES = [Route("/api/v1/search", search)]
