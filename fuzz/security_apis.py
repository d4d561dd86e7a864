"""Throws broken requests at the APIs of entries, quotas, passwords and delegation tokens, of a broker in this process.

There is no network, and the broker's files lie in memory. The requests are filled with values that mean something in
most places, then cut, flipped, spliced and lied in, and sent by the administrator, by a user without rights, by one
that has logged in with a delegation token, and by one without a login. Of each is asked:

* nothing escapes but what closes the connection, and no line at ERROR is logged, as for a handler that fails,
* the answer can be read to its end,
* only the administrator changes anything, but for the tokens that users have of their own,
* it is done within ``MAX_DECODE_SECONDS`` of processor time,

and of each broker at its end, that another one on the same files has the same entries, quotas, passwords and tokens.

    python -m fuzz.security_apis --seconds 60 --seed 1

The same seed and the same number of rounds try the same bytes.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from fuzz.decoders import MAX_DECODE_SECONDS, Finding, Statistics, mutated, random_message, run_command
from fuzz.live_socket import PLAUSIBLE, RequestMaker
from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode_bytes
from kafka_wire.headers import read_response_header
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from tests.fakes.inline_workers import InlineWorkers
from tests.handlers.acls import ADMIN, SECURE
from tests.handlers.wire_client import ADVERTISED, WireClient, broker_config, new_dispatcher
from tests.in_memory import directory_in_memory
from trio_broker.bootstrap import open_services
from trio_broker.handlers.support.registry import served_apis
from trio_broker.network.errors import CloseConnection
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal

APIS: Final = (
    *(ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN),
    *(ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),
    *(ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    *(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
)

KINDS: Final = (AccessControlEntryRecord, ClientQuotaRecord, UserScramCredentialRecord, DelegationTokenRecord)
"""The records that those APIs are about."""

ROUNDS_OF_A_BROKER: Final = 2000
"""Then comes another one: what is kept only grows, and answers with it."""

REQUESTS: Final = 400
"""Made for each broker, to be broken in many ways: one takes as long to make as ten to be refused."""

BREAK_CHANCE: Final = 0.6

NAMES: Final = ("orders", "User:alice", "User:*", "*", "", "o\0rders", "x" * 250, "\u202eabc", "User:")
"""Of what entries, quotas and tokens are about. Not of the cluster: by an entry about that others get rights."""


@attrs.define(eq=False)
class Errors(logging.Handler):
    """Keeps what the broker logs of bugs."""

    lines: list[str] = attrs.field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))

    def __hash__(self) -> int:
        return id(self)


@attrs.frozen
class MadeRequest:
    """A request as a client would write it, without its header."""

    kind: type[Any]
    version: int
    body: bytes


@attrs.define
class SecurityRequests(RequestMaker):
    """Makes requests of ``APIS``."""

    def __attrs_post_init__(self) -> None:
        self.batches = self.dense_batches = []
        apis = served_apis()
        self.kinds = [
            (apis[key].request, version)
            for key in APIS
            for version in range(apis[key].versions.low, apis[key].versions.high + 1)
        ]

    def made(self) -> MadeRequest:
        kind, version = self.chance.choice(self.kinds)
        message = self.plausible(random_message(kind, version, self.chance), version)
        return MadeRequest(kind, version, encode_bytes(message, version))

    def replacement(self, message: Any, name: str, value: Any) -> Any:
        """Names that mean something, or are strange, beside what ``RequestMaker`` has."""
        if name not in PLAUSIBLE and isinstance(value, str) and self.chance.random() < 0.7:
            return self.chance.choice(NAMES)
        return super().replacement(message, name, value)


@attrs.define
class Target:
    """A broker, and who asks it."""

    broker: WireClient
    chance: random.Random
    statistics: Statistics
    errors: Errors

    async def try_request(self, request: MadeRequest, other: bytes) -> Finding | None:
        """Return what is wrong with how the broker takes a request, which may be broken."""
        body = mutated(request.body, other, self.chance) if self.chance.random() < BREAK_CHANCE else request.body
        principal = self.chance.choice(
            (
                self.broker.principal,
                *[KafkaPrincipal(USER_TYPE, ADMIN)] * 3,
                KafkaPrincipal(USER_TYPE, "alice"),
                KafkaPrincipal(USER_TYPE, "alice", token_authenticated=True),
            )
        )
        name = f"{request.kind.__name__} v{request.version} of {principal}"
        before, started = self.kept(principal), time.thread_time()
        self.statistics.tried += 1
        try:
            await self.ask(request, principal, body)
        except CloseConnection:
            pass
        except Exception as error:
            return Finding(name, body, f"{type(error).__name__}: {error}")
        if self.errors.lines:
            problem = "\n".join(self.errors.lines)
            self.errors.lines.clear()
            return Finding(name, body, problem)
        if principal.name != ADMIN and self.kept(principal) != before:
            return Finding(name, body, "changed what it has no right to")
        seconds = time.thread_time() - started
        return Finding(name, body, f"took {seconds:.1f} s") if seconds > MAX_DECODE_SECONDS else None

    async def ask(self, request: MadeRequest, principal: KafkaPrincipal, body: bytes) -> None:
        client = attrs.evolve(self.broker, principal=principal)
        answer = await client.send(request.kind.API_KEY, request.version, body)
        assert answer is not None, "there is no answer"
        _, position = read_response_header(request.kind.API_KEY, request.version, answer)
        _, end = decode(request.kind.RESPONSE, request.version, answer, position)
        assert end == len(answer), f"{len(answer) - end} bytes are left over"
        self.statistics.read += 1

    def kept(self, principal: KafkaPrincipal) -> list[int]:
        """Which versions there are of what ``principal`` may not change: the tokens of a login are its own."""
        may_have_tokens = principal.name == "alice" and not principal.token_authenticated
        image = self.broker.services.metadata_cache.image
        kinds = [kind for kind in KINDS if not (may_have_tokens and kind is DelegationTokenRecord)]
        return [*(id(image.records_of(kind)) for kind in kinds), id(image.topics), id(image.configs_by_resource)]


@asynccontextmanager
async def opened_broker(directory: Path) -> AsyncIterator[WireClient]:
    clock = ManualClock()
    config = broker_config(directory, delegation_token_secret_key="key", offsets_topic_num_partitions="1", **SECURE)
    runtime = attrs.evolve(real_runtime(clock), workers=InlineWorkers())
    async with open_services(config, runtime, ADVERTISED) as services:
        yield WireClient(new_dispatcher(services), clock)


def records_of(broker: WireClient) -> Mapping[type[Any], Mapping[Any, Any]]:
    image = broker.services.metadata_cache.image
    return {kind: dict(image.records_of(kind)) for kind in KINDS}


async def try_broker(
    chance: random.Random, rounds: Iterable[object], statistics: Statistics, errors: Errors, directory: Path
) -> list[Finding]:
    """Return the findings of one broker."""
    async with opened_broker(directory) as broker:
        token = await broker.as_user("alice").ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        maker = SecurityRequests(chance, {"orders": bytes(16)}, bytes(token.hmac))
        requests = [maker.made() for _ in range(REQUESTS)]
        target = Target(broker, chance, statistics, errors)
        findings = [
            finding
            for _ in rounds
            if (finding := await target.try_request(chance.choice(requests), chance.choice(requests).body)) is not None
        ]
        kept = records_of(broker)
    async with opened_broker(directory) as again:
        if records_of(again) != kept:
            findings.append(Finding("a restart", b"", f"{kept} became {records_of(again)}"))
    return findings


def fuzz(seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings. A round is a request."""
    chance, errors, following = random.Random(seed), Errors(), iter(rounds)
    logger = logging.getLogger("trio_broker")
    logger.addHandler(errors)
    try:
        while chunk := list(itertools.islice(following, ROUNDS_OF_A_BROKER)):
            with directory_in_memory() as directory:
                yield from trio.run(try_broker, chance, chunk, statistics, errors, Path(directory))
    finally:
        logger.removeHandler(errors)


if __name__ == "__main__":
    sys.exit(run_command(fuzz, "Throw broken requests at the APIs of entries, quotas and passwords."))
