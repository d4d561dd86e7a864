"""What a check of a right costs with ten thousand access control entries: the first of its kind, and one that is kept.

Entries are those of many applications: half for one topic each, half for a prefix, some for everybody, some from a
range of addresses, some that deny.
"""

from __future__ import annotations

import random
import time

from bench.outcome import Options, Outcome
from kafka_wire.acl import WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.security.standard_acl import ANY_USER, StandardAcl
from trio_broker.security.standard_authorizer import StandardAuthorizer

ENTRIES = 10_000
PRINCIPALS = 50
QUESTIONS = 5_000
SEED = 1
NS_PER_US = 1000


def acls(options: Options) -> Outcome:
    """The processor time of a check."""
    outcome = Outcome("acls")
    entries, questions = options.volume(ENTRIES), options.volume(QUESTIONS)
    table = outcome.table(f"A check of a right, {entries:,} access control entries", "check", "CPU µs")
    draw = random.Random(SEED)
    authorizer = StandardAuthorizer(allow_everyone_if_no_acl_found=False)
    for number in range(entries):
        authorizer.add(number.to_bytes(16, "big"), entry(number, draw))
    principals = [KafkaPrincipal(USER_TYPE, user(number)) for number in range(PRINCIPALS)]
    asked = [(principals[number % PRINCIPALS], topic(draw)) for number in range(questions)]
    for name, text in (("acls-first", "the first of its kind"), ("acls-kept", "kept")):
        began = time.process_time_ns()
        for principal, name_of_topic in asked:
            authorizer.authorize(principal, "10.1.2.3", AclOperation.READ, ResourceType.TOPIC, name_of_topic)
        outcome.measures[name] = (time.process_time_ns() - began) / questions / NS_PER_US
        table.add(text, outcome.measures[name])
    return outcome


def user(number: int) -> str:
    return f"app-{number}"


def topic(draw: random.Random) -> str:
    return f"team-{draw.randrange(200)}-orders-{draw.randrange(ENTRIES)}"


def entry(number: int, draw: random.Random) -> StandardAcl:
    is_prefix, name = number % 2 == 1, topic(draw)
    return StandardAcl(
        resource_type=ResourceType.TOPIC,
        resource_name=name[: draw.randrange(6, len(name))] if is_prefix else name,
        pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=ANY_USER if number % 3 == 0 else f"{USER_TYPE}:{user(number % PRINCIPALS)}",
        host="10.0.0.0/8" if number % 5 == 0 else WILDCARD,
        operation=AclOperation.READ,
        permission_type=AclPermissionType.DENY if number % 7 == 0 else AclPermissionType.ALLOW,
    )
