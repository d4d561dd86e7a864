"""Connections gathered by client: what the list of clients and the page of one are made of. Pure functions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from broker_admin.client_advice import ClientAdvice, producer_advice
from broker_admin.listing import ListQuery, SortValue, ordered_by
from broker_admin.schemas import bounded
from broker_admin.views.node.clients import ServedVersions
from broker_admin.views.node.identity import AdvertisedListener
from kafka_wire.limits import MAX_STRING_BYTES
from trio_broker.coordinator.reporting.snapshot import max_known
from trio_broker.network.statistics import (
    ApiErrors,
    ApiUse,
    ConnectionStage,
    ConnectionStatistics,
    DepartedConnection,
    ProducedBatches,
)

ClientIdentity = tuple[str, str, str]
"""A client id with the name and the version of its software, by which connections are one client's."""


@attrs.frozen
class ClientSummary:
    """The connections of one client id and one software, together. ``connected_at_ms`` is the oldest one's.

    ``oldest_request`` is the API of the request that has been under way for the longest time. ``unread_bytes`` were
    sent and not read yet; ``unread_wait_seconds`` is how long the next request will wait for that at least, on the
    slowest of the connections, None where none has such a backlog. Of a client that has left within the last hour,
    ``connections`` are the latest that it had, ``left_at_ms`` is when the last one ended, and ``left_because`` why; of
    others both are None.
    """

    client_id: str
    software_name: str
    software_version: str
    connections: int
    muted_connections: int
    muted_because: tuple[str, ...]
    listeners: tuple[str, ...]
    peer_hosts: tuple[str, ...]
    further_peer_hosts: int
    connected_at_ms: int
    bytes_in: int
    bytes_out: int
    requests: int
    requests_per_second: int
    unread_bytes: int
    unread_wait_seconds: float | None
    oldest_request: str | None
    oldest_request_seconds: float | None
    apis: tuple[ApiUse, ...]
    errors: int
    errors_by_api: tuple[ApiErrors, ...]
    produced: ProducedBatches | None
    left_at_ms: int | None = None
    left_because: str | None = None


@attrs.frozen
class AdvertisedAddress:
    """Where Metadata sends ``connections`` of a client that came through one listener."""

    listener_name: str
    host: str
    port: int
    connections: int


@attrs.frozen
class NegotiatedApi:
    """One API that a client uses: the versions that ApiVersions lists, and those it uses."""

    api: str
    min_version: int | None
    max_version: int | None
    used_versions: tuple[int, ...]
    requests: int


@attrs.frozen
class ClientDescription:
    """One client id: its connections by software, what it received, and what it sends."""

    client_id: str
    clients: tuple[ClientSummary, ...]
    advertised_addresses: tuple[AdvertisedAddress, ...]
    apis: tuple[NegotiatedApi, ...]
    produced: ProducedBatches | None
    average_batch_bytes: float | None
    average_batch_records: float | None
    advice: tuple[ClientAdvice, ...]


MAX_PEER_HOSTS = 10
"""Hosts of a client that are named; the others are counted."""


def software_text(name: str, version: str) -> str:
    """The software as one text; empty for a client that has not named it."""
    return f"{name} {version}".strip()


CONNECTION_COLUMNS: Mapping[str, Callable[[ConnectionStatistics], SortValue]] = {
    "connection_id": lambda each: each.connection_id,
    "client_id": lambda each: each.client_id,
    "peer_host": lambda each: each.peer_host,
    "connected_at_ms": lambda each: each.connected_at_ms,
    "idle_seconds": lambda each: each.idle_seconds,
    "bytes_in": lambda each: each.bytes_in,
    "bytes_out": lambda each: each.bytes_out,
    "requests": lambda each: each.requests,
    "requests_per_second": lambda each: each.requests_per_second,
    "unread_bytes": lambda each: each.unread_bytes,
    "request_seconds": lambda each: each.request_seconds,
    "errors": lambda each: each.errors,
}

CLIENT_COLUMNS: Mapping[str, Callable[[ClientSummary], SortValue]] = {
    "client_id": lambda each: each.client_id,
    "software": lambda each: software_text(each.software_name, each.software_version),
    "connections": lambda each: each.connections,
    "muted_connections": lambda each: each.muted_connections,
    "connected_at_ms": lambda each: each.connected_at_ms,
    "bytes_in": lambda each: each.bytes_in,
    "bytes_out": lambda each: each.bytes_out,
    "requests": lambda each: each.requests,
    "requests_per_second": lambda each: each.requests_per_second,
    "unread_bytes": lambda each: each.unread_bytes,
    "oldest_request_seconds": lambda each: each.oldest_request_seconds,
    "errors": lambda each: each.errors,
    "left_at_ms": lambda each: each.left_at_ms,
}


@attrs.frozen(kw_only=True)
class ConnectionsQuery(ListQuery):
    """Which connections are wanted: of one ``client_id``, in one ``stage``, only those held back."""

    order: str = ordered_by("connection_id", CONNECTION_COLUMNS)
    client_id: str | None = bounded(None, maxLength=MAX_STRING_BYTES)
    stage: ConnectionStage | None = None
    muted: bool = False


@attrs.frozen(kw_only=True)
class ClientsQuery(ListQuery):
    """Which clients are wanted: those that are connected, or those that have ``left`` within the last hour."""

    order: str = ordered_by("client_id", CLIENT_COLUMNS)
    left: bool = False


def connection_key(connection: ConnectionStatistics) -> str:
    """The id by which a list of connections is continued."""
    return f"{connection.connection_id:019d}"


def connection_search_text(connection: ConnectionStatistics) -> str:
    software = software_text(connection.software_name, connection.software_version)
    return f"{connection.client_id} {software} {connection.peer_host}:{connection.peer_port} {connection.listener_name}"


def client_key(client: ClientSummary) -> str:
    """The id by which a list of clients is continued: client ids of several softwares are several clients."""
    return f"{client.client_id}\n{client.software_name}\n{client.software_version}"


def client_search_text(client: ClientSummary) -> str:
    software = software_text(client.software_name, client.software_version)
    return f"{client.client_id} {software} {' '.join(client.peer_hosts)}"


def wanted_connections(
    connections: Iterable[ConnectionStatistics], query: ConnectionsQuery
) -> list[ConnectionStatistics]:
    """The connections that pass the filters of ``query``."""
    return [
        each
        for each in connections
        if (query.client_id is None or each.client_id == query.client_id)
        and (query.stage is None or each.stage is query.stage)
        and (not query.muted or each.muted_because is not None)
    ]


def identity_of(connection: ConnectionStatistics) -> ClientIdentity:
    return connection.client_id, connection.software_name, connection.software_version


def gather_clients(connections: Iterable[ConnectionStatistics]) -> list[ClientSummary]:
    """One line for each client id and software."""
    gathered: defaultdict[ClientIdentity, list[ConnectionStatistics]] = defaultdict(list)
    for each in connections:
        gathered[identity_of(each)].append(each)
    return [summarize(together) for together in gathered.values()]


def gather_departed(
    departed: Iterable[DepartedConnection], connections: Iterable[ConnectionStatistics]
) -> list[ClientSummary]:
    """One line for each client id and software that have left, none of which is among ``connections``."""
    here = set(map(identity_of, connections))
    gathered: defaultdict[ClientIdentity, list[DepartedConnection]] = defaultdict(list)
    for each in departed:
        gathered[identity_of(each.statistics)].append(each)
    return [
        attrs.evolve(
            summarize([each.statistics for each in together]),
            left_at_ms=together[-1].left_at_ms,
            left_because=together[-1].reason,
        )
        for client, together in gathered.items()
        if client not in here
    ]


def summarize(connections: Sequence[ConnectionStatistics]) -> ClientSummary:
    """Connections of one client id and software, together."""
    first = connections[0]
    hosts = sorted({each.peer_host for each in connections})
    under_way = [each for each in connections if each.request_seconds is not None]
    oldest = max(under_way, key=lambda each: each.request_seconds or 0.0, default=None)
    return ClientSummary(
        client_id=first.client_id,
        software_name=first.software_name,
        software_version=first.software_version,
        connections=len(connections),
        muted_connections=sum(each.muted_because is not None for each in connections),
        muted_because=tuple(sorted({each.muted_because for each in connections if each.muted_because is not None})),
        listeners=tuple(sorted({each.listener_name for each in connections})),
        peer_hosts=tuple(hosts[:MAX_PEER_HOSTS]),
        further_peer_hosts=max(0, len(hosts) - MAX_PEER_HOSTS),
        connected_at_ms=min(each.connected_at_ms for each in connections),
        bytes_in=sum(each.bytes_in for each in connections),
        bytes_out=sum(each.bytes_out for each in connections),
        requests=sum(each.requests for each in connections),
        requests_per_second=sum(each.requests_per_second for each in connections),
        unread_bytes=sum(each.unread_bytes for each in connections),
        unread_wait_seconds=max_known(each.unread_wait_seconds for each in connections),
        oldest_request=None if oldest is None else oldest.request,
        oldest_request_seconds=None if oldest is None else oldest.request_seconds,
        apis=added_uses(use for each in connections for use in each.apis),
        errors=sum(each.errors for each in connections),
        errors_by_api=added_errors(errors for each in connections for errors in each.errors_by_api),
        produced=added_batches([each.produced for each in connections if each.produced is not None]),
    )


def added_uses(uses: Iterable[ApiUse]) -> tuple[ApiUse, ...]:
    counts: Counter[tuple[str, int]] = Counter()
    for use in uses:
        counts[use.api, use.version] += use.requests
    return tuple(ApiUse(api, version, requests) for (api, version), requests in sorted(counts.items()))


def added_errors(errors: Iterable[ApiErrors]) -> tuple[ApiErrors, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in errors:
        counts[each.api, each.error] += each.count
    return tuple(ApiErrors(api, error, count) for (api, error), count in sorted(counts.items()))


def added_batches(produced: Sequence[ProducedBatches]) -> ProducedBatches | None:
    """What several connections produced, together; None if none did."""
    if not produced:
        return None
    codecs: Counter[str] = Counter()
    for each in produced:
        codecs.update(each.batches_by_codec)
    acks = {each.acks for each in produced}
    return ProducedBatches(
        acks=acks.pop() if len(acks) == 1 else None,
        batches=sum(each.batches for each in produced),
        idempotent_batches=sum(each.idempotent_batches for each in produced),
        records=sum(each.records for each in produced),
        bytes=sum(each.bytes for each in produced),
        batches_by_codec=dict(codecs),
    )


def describe_client(
    client_id: str,
    connections: Iterable[ConnectionStatistics],
    listeners: Iterable[AdvertisedListener],
    served: Iterable[ServedVersions],
    now_ms: int,
    departed: Iterable[DepartedConnection] = (),
) -> ClientDescription | None:
    """One client id at ``now_ms``, by its connections, or by those it had if it has left; None without any."""
    lives = [(each, now_ms) for each in connections if each.client_id == client_id]
    gone = [] if lives else [each for each in departed if each.statistics.client_id == client_id]
    lives += [(each.statistics, each.left_at_ms) for each in gone]
    if not lives:
        return None
    own = [each for each, _ in lives]
    clients = gather_departed(gone, ()) if gone else gather_clients(own)
    producing = [
        (each.produced, end_ms - each.connected_at_ms)
        for each, end_ms in lives
        if each.produced is not None and each.produced.batches
    ]
    produced = added_batches([each for each, _ in producing])
    seconds = sum(life_ms for _, life_ms in producing) / 1000
    return ClientDescription(
        client_id=client_id,
        clients=tuple(sorted(clients, key=client_key)),
        advertised_addresses=advertised_addresses(own, {each.name: each for each in listeners}),
        apis=negotiated_apis(added_uses(use for each in own for use in each.apis), served),
        produced=produced,
        average_batch_bytes=None if produced is None else produced.bytes / produced.batches,
        average_batch_records=None if produced is None else produced.records / produced.batches,
        advice=() if produced is None else producer_advice(produced, seconds, backlog_bytes(own)),
    )


def backlog_bytes(connections: Iterable[ConnectionStatistics]) -> int:
    """What is unread on those of ``connections`` on which requests wait behind others."""
    return sum(each.unread_bytes for each in connections if each.stage is ConnectionStage.UNREAD)


def advertised_addresses(
    connections: Iterable[ConnectionStatistics], listeners: Mapping[str, AdvertisedListener]
) -> tuple[AdvertisedAddress, ...]:
    """What Metadata answers on each of ``connections``: an advertised host, or the one that was dialled."""
    advertised: Counter[tuple[str, str, int]] = Counter()
    for each in connections:
        if listener := listeners.get(each.listener_name):
            advertised[listener.name, listener.host or each.local_host, listener.port] += 1
    return tuple(AdvertisedAddress(name, host, port, count) for (name, host, port), count in sorted(advertised.items()))


def negotiated_apis(uses: Iterable[ApiUse], served: Iterable[ServedVersions]) -> tuple[NegotiatedApi, ...]:
    """The APIs in ``uses``, most used first."""
    ranges = {each.api: each for each in served}
    by_api: defaultdict[str, list[ApiUse]] = defaultdict(list)
    for use in uses:
        by_api[use.api].append(use)
    found = [
        NegotiatedApi(
            api=api,
            min_version=ranges[api].min_version if api in ranges else None,
            max_version=ranges[api].max_version if api in ranges else None,
            used_versions=tuple(use.version for use in each),
            requests=sum(use.requests for use in each),
        )
        for api, each in by_api.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.requests, each.api)))
