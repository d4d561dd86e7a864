"""Metadata: the brokers and their addresses, the topics, and the leader of each partition.

Topics are asked for by name, by id (from version 12) or all at once. What a null or an empty list means depends on the
version (KIP-4). A topic that does not exist may be created by the request: Kafka answers this first request with an
error and creates the topic afterwards; here it is created first, for up to ``CREATION_SECONDS``, which spares every
client a retry.

Source: Kafka's KafkaApis.handleTopicMetadataRequest and AutoTopicCreationManager.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from functools import partial

import trio

from kafka_wire.codec import encode_in_turns
from kafka_wire.error_codes import ErrorCode
from kafka_wire.error_counts import ERROR_WALKS, ERROR_WALKS_IN_TURNS, LARGE, LARGE_ELEMENTS
from kafka_wire.errors import KafkaError
from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.release import release_in_turns
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.request_phase import RequestPhase
from trio_broker.common.topic_names import is_internal_topic, require_valid_topic_name
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, clear_in_turns, in_turns, list_in_turns
from trio_broker.handlers.support.authorized_operations import cluster_operations, topic_operations
from trio_broker.handlers.support.broker_nodes import BrokerEndpoints, BrokerNode, broker_nodes, controller_for_clients
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    InHandler,
)

NULL_MEANS_ALL_SINCE_VERSION = 1
"""Before it an empty list means all topics; from it on null does, and empty means none (KIP-4)."""

BY_ID_SINCE_VERSION = 12

LISTENER_NOT_FOUND_SINCE_VERSION = 6

MAX_CREATED_PER_REQUEST = 100
"""Topics that one Metadata request may bring about by naming them: each takes milliseconds of disk, in a handler slot.
Those beyond are answered as unknown, which makes a client ask again."""

CREATION_SECONDS = 1.0
"""How long one Metadata request waits for the controller to create what it names. Kafka's does not wait: a controller
that is being elected would hold up the client, and all its other topics. A client asks again, and so do all others."""


def error_response(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """Every topic asked for has the error; in version 13 the response does too."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
            for topic in request.topics or ()
        ],
        error_code=error.code,
    )


@handles(
    MetadataRequest,
    error_response=error_response,
    requires=[
        InHandler(
            [DESCRIBE_TOPIC],
            "the topic: TOPIC_AUTHORIZATION_FAILED by name, UNKNOWN_TOPIC_ID by id; left out where all are asked for",
        ),
        InHandler([CREATE_CLUSTER, CREATE_TOPIC], "creating it by its mention: TOPIC_AUTHORIZATION_FAILED"),
        InHandler([DESCRIBE_CLUSTER], "no authorized operations of the cluster"),
    ],
)
def metadata(request: MetadataRequest, context: Context) -> Steps[MetadataResponse | bytes]:
    """Describe the brokers and the topics asked for; a large answer about all topics, or about one, is kept."""
    services = context.services
    image = services.metadata_cache.image
    brokers = broker_nodes(image, context.connection)
    key = answer_key(request, context, brokers)
    answers = services.metadata_answers
    if (kept := answers.get(described_part(request, context.version, image), key)) is not None:
        return kept
    if key is None or image.partition_count <= LARGE_ELEMENTS:
        return (yield from described(request, context, brokers))
    # All clients ask after a change: the first makes the answer, and the others wait for it.
    while (made := answers.being_made.get(key)) is not None:
        context.release_handler(RequestPhase.PURGATORY)
        yield made.wait
        part = described_part(request, context.version, services.metadata_cache.image)
        if (kept := answers.get(part, key)) is not None:
            return kept
    made = answers.being_made[key] = trio.Event()
    try:
        return (yield from kept_answer(request, context, brokers, key))
    finally:
        del answers.being_made[key]
        made.set()


def kept_answer(
    request: MetadataRequest, context: Context, brokers: tuple[BrokerNode, ...], key: Hashable
) -> Steps[MetadataResponse | bytes]:
    """Describe what was asked for, and keep the answer if it is large and without errors."""
    services = context.services
    part = described_part(request, context.version, services.metadata_cache.image)
    response = yield from described(request, context, brokers)
    if ERROR_WALKS[MetadataResponse](response) is not LARGE:
        return response
    body: bytes | None = yield partial(in_turns, written_if_right(response, context.version))
    if body is None:
        return response
    # Described from one image, unless that has changed while this yielded.
    if described_part(request, context.version, services.metadata_cache.image) is part:
        services.metadata_answers.keep(part, key, body)
    messages = [response]
    del response
    yield partial(in_turns, release_in_turns(messages))
    return body


def answer_key(request: MetadataRequest, context: Context, brokers: tuple[BrokerNode, ...]) -> Hashable:
    """All that the answer depends on beside the image; None for one that is not worth keeping."""
    if request.topics is not None and len(request.topics) > 1:
        return None
    topics = None if request.topics is None else tuple((topic.name, topic.topic_id) for topic in request.topics)
    asked = request.include_topic_authorized_operations, request.include_cluster_authorized_operations
    authorizer = context.services.authorizer
    seen_by = None if authorizer is None else (context.principal, context.connection.peer_host, authorizer.generation)
    return context.version, brokers, topics, asked, seen_by


def described_part(request: MetadataRequest, version: int, image: MetadataImage) -> object:
    """What of the image an answer about all topics, or about one, is made from; None where that topic is missing."""
    if wants_all(request, version) or request.topics is None:
        return image.topics
    if len(request.topics) != 1:
        return None
    [wanted] = request.topics
    return image.topics_by_id.get(wanted.topic_id) if wanted.name is None else image.topics.get(wanted.name)


def written_if_right(response: MetadataResponse, version: int) -> Generator[None, None, bytes | None]:
    """The body of a response without errors; one with errors has to be counted, and clients will ask again."""
    if (yield from ERROR_WALKS_IN_TURNS[MetadataResponse](response)) is not None:
        return None
    chunks = yield from encode_in_turns(response, version)
    return b"".join(chunks)  # type: ignore[arg-type] # there are no records in it


def described(request: MetadataRequest, context: Context, brokers: tuple[BrokerNode, ...]) -> Steps[MetadataResponse]:
    node = context.services.node
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in brokers
        ],
        cluster_id=node.cluster_id,
        controller_id=controller_for_clients(node.node_id, brokers),
        topics=(yield from describe_topics(request, context, brokers)),
        cluster_authorized_operations=cluster_operations(context, asked=request.include_cluster_authorized_operations),
        error_code=ErrorCode.NONE,
    )


def wants_all(request: MetadataRequest, version: int) -> bool:
    if version < NULL_MEANS_ALL_SINCE_VERSION:
        return not request.topics
    return request.topics is None


def describe_topics(
    request: MetadataRequest, context: Context, brokers: tuple[BrokerNode, ...]
) -> Steps[list[MetadataResponseTopic]]:
    """Describe each topic asked for, creating missing ones where the client and the broker allow it."""
    endpoints = BrokerEndpoints(context.services.metadata_cache.image, brokers)
    asked = request.include_topic_authorized_operations
    topics: list[MetadataResponseTopic] = []
    budget = YieldBudget()
    if wants_all(request, context.version):
        everything = context.services.metadata_cache.image.topics.values()
        by_name = sorted(everything, key=lambda topic: topic.name)
        for topic in by_name:
            if context.may(DESCRIBE_TOPIC, topic.name, is_audited=False):
                topics.append((yield from describe_topic(topic, endpoints, context, asked=asked)))
            if budget.is_spent:
                yield budget.renewed
        return topics
    may_create = request.allow_auto_topic_creation and context.services.config.request.auto_create_topics_enable
    # A broker alone is the controller itself.
    seconds = CREATION_SECONDS if context.services.controller_channel is not None else math.inf
    until = trio.current_time() + seconds
    # A topic that is named twice is described once, as in Kafka: a large one takes kilobytes to describe and a few
    # bytes to name, so that a small request could otherwise make an endless response.
    described: set[tuple[bytes, str | None]] = set()
    missing = 0
    for wanted in request.topics or ():
        if budget.is_spent:
            yield budget.renewed
        if (named := (wanted.topic_id, wanted.name)) in described:
            continue
        described.add(named)
        # A topic asked for by id counts as missing too: nothing is created for it, so that the limit is only stricter.
        missing += wanted.name not in context.services.metadata_cache.image.topics
        create_until = until if may_create and missing <= MAX_CREATED_PER_REQUEST else None
        topics.append(
            (yield from describe_or_create(wanted, context, endpoints, asked=asked, create_until=create_until))
        )
    yield from clear_in_turns(described)
    return topics


def describe_or_create(
    wanted: MetadataRequestTopic,
    context: Context,
    endpoints: BrokerEndpoints,
    *,
    asked: bool,
    create_until: float | None,
) -> Steps[MetadataResponseTopic]:
    """Describe one topic, asked for by name or by id, or answer with its error."""
    try:
        topic = yield from find_or_create(wanted, context, create_until=create_until)
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            # Versions 10 and 11 may ask without a name, but not be answered without one.
            name=wanted.name if context.version >= BY_ID_SINCE_VERSION else wanted.name or "",
            topic_id=wanted.topic_id,
            partitions=[],
            topic_authorized_operations=OPERATIONS_NOT_REQUESTED,
        )
    return (yield from describe_topic(topic, endpoints, context, asked=asked))


def find_or_create(wanted: MetadataRequestTopic, context: Context, *, create_until: float | None) -> Steps[TopicImage]:
    """Return the topic, created if necessary and allowed; ``create_until`` is when that is given up, None at once.

    Raises:
        KafkaError: ``TOPIC_AUTHORIZATION_FAILED``, ``UNKNOWN_TOPIC_ID``, ``UNKNOWN_TOPIC_OR_PARTITION``,
            ``INVALID_TOPIC_EXCEPTION``, or what creation was refused with.
    """
    image = context.services.metadata_cache.image
    # A request without a name and with the zero id asks by id as well, and finds no topic.
    if wanted.topic_id != NO_UUID or wanted.name is None:
        if context.version < BY_ID_SINCE_VERSION:
            raise KafkaError("topics go by name before version 12", code=ErrorCode.INVALID_REQUEST)
        topic = image.topics_by_id.get(wanted.topic_id)
        # Who may not see it does not learn that there is a topic of this id.
        if topic is not None and context.may(DESCRIBE_TOPIC, topic.name):
            return topic
        raise KafkaError("no topic has this id", code=ErrorCode.UNKNOWN_TOPIC_ID)
    context.require(DESCRIBE_TOPIC, wanted.name)
    if topic := image.topics.get(wanted.name):
        return topic
    require_valid_topic_name(wanted.name)
    if create_until is None:
        raise KafkaError(f"no topic {wanted.name!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not context.may(CREATE_CLUSTER, is_audited=False):
        context.require(CREATE_TOPIC, wanted.name)
    context.release_for_disk()
    created: TopicImage = yield partial(auto_create, wanted.name, context, create_until)
    return created


async def auto_create(name: str, context: Context, until: float) -> TopicImage:
    """Create a topic with the broker's defaults, unless another request has just created it."""
    services = context.services
    with trio.move_on_at(until):
        [outcome] = await services.controller_client.create_topics([NewTopic(name=name)])
        # Another request may have created it between the lookup and the controller's lock: that is what was wanted.
        if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
    if (topic := services.metadata_cache.image.topics.get(name)) is None:
        # The controller has not answered, or this broker has not read it yet where another one is that; or it is
        # deleted again. Clients ask again.
        raise KafkaError(f"no topic {name!r} yet", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def describe_topic(
    topic: TopicImage, endpoints: BrokerEndpoints, context: Context, *, asked: bool
) -> Steps[MetadataResponseTopic]:
    """Describe one topic, of which there may be ten thousand partitions."""
    partitions = (
        describe_partition(index, partition, endpoints, context.version)
        for index, partition in sorted(topic.partitions.items())
    )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=(yield from list_in_turns(partitions)),
        topic_authorized_operations=topic_operations(context, topic.name, asked=asked),
    )


def describe_partition(
    index: int, partition: PartitionImage, endpoints: BrokerEndpoints, version: int
) -> MetadataResponsePartition:
    code = endpoints.unavailability(partition)
    if code is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_NOT_FOUND_SINCE_VERSION:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=NO_LEADER if code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=endpoints.offline_replicas(partition),
    )
