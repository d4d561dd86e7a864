"""A broker with a declaration: what it makes of its topics at a start, and what it refuses."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from kafka_wire.acl import PatternType
from kafka_wire.sasl.scram import ScramMechanism
from tests.running_broker import connected, make_broker, running
from tests.test_broker import CLEAN_MARKER, admin_status, start_expecting_failure
from trio_broker.broker import Broker
from trio_broker.changes.change import Change
from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.cluster.client_quota_control import quotas_of
from trio_broker.cluster.declaration_preview import image_at_next_start, preview_declaration
from trio_broker.cluster.scram_control import find_credential
from trio_broker.declaration.credential_plan import is_kept
from trio_broker.declaration.declaration import (
    Declaration,
    DeclarationError,
    DeclaredCredential,
    DeclaredTopic,
    DeclaredUser,
)
from trio_broker.declaration.declaration_file import read_declaration
from trio_broker.declaration.plan import difference_lines
from trio_broker.declaration.rights_text import group_right, parse_right
from trio_broker.runtime.real import real_runtime
from trio_broker.storage.errors import DataDirectoryError

SETTINGS = {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def declaration(name: str = "orders", **given) -> Declaration:
    return Declaration((DeclaredTopic(**{"name": name, "origin": "topics.toml", **given}),))


def declaring(directory, declared: Declaration, **settings: str) -> Broker:
    broker = make_broker(directory, None, **settings)
    broker.declaration = declared
    return broker


async def topics_after_a_start(directory, declared: Declaration) -> tuple[dict[str, Any], list[Change]]:
    """The topics as their numbers of partitions and own settings, and the changes that the start has made."""
    broker = declaring(directory, declared)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        before = len([each for each in broker.services.changes.changes if each.action.value == "started"])
        changes = list(broker.services.changes.changes)[before:]
        image = broker.services.metadata_cache.image
        found = {name: (len(each.partitions), dict(each.configs)) for name, each in image.topics.items()}
        broker.stop()
    return found, changes


async def refused(directory, declared: Declaration) -> tuple[str, ...]:
    return (await start_expecting_failure(declaring(directory, declared))).reasons


async def preview(directory, declared: Declaration) -> list[str]:
    config = make_broker(directory).config
    return difference_lines(await preview_declaration(declared, config, real_runtime()))


async def test_missing_topics_are_created_and_a_second_start_changes_nothing(tmp_path):
    declared = declaration(partitions=2, settings=SETTINGS)
    topics, changes = await topics_after_a_start(tmp_path, declared)
    assert topics == {"orders": (2, SETTINGS)}
    [change] = changes
    assert (change.action.value, change.origin.channel.value) == ("created", "declaration")
    assert change.origin.request == "topics.toml"
    assert await topics_after_a_start(tmp_path, declared) == (topics, changes)


async def test_topics_grow_and_get_the_settings_that_are_declared_and_keep_the_others(tmp_path):
    await topics_after_a_start(tmp_path, declaration(partitions=2, settings=SETTINGS))
    declared = declaration(partitions=3, settings={"retention.ms": "6", "segment.ms": "60000"})
    topics, changes = await topics_after_a_start(tmp_path, declared)
    assert topics == {"orders": (3, {**SETTINGS, "retention.ms": "6", "segment.ms": "60000"})}
    assert [each.action.value for each in changes[1:]] == ["partitions-added", "config"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partitions": 1}, "it has 2 partitions, which cannot become 1"),
        ({"replication_factor": 3}, "its replication factor is 1 and cannot become 3"),
        ({"settings": {"retention.m": "5"}}, "topics have no setting retention.m; did you mean retention.ms?"),
        (
            {"settings": {"retention.ms": "many"}},
            "retention.ms: 'many' is refused: the value must be a whole number",
        ),
        ({"name": "a/b"}, "topic name 'a/b' has characters other than letters, digits, '.', '_' and '-'"),
        (
            {"name": "new", "replication_factor": 2},
            "replication factor 2 is more than the 1 broker(s) of the cluster",
        ),
    ],
)
async def test_a_declaration_is_refused_as_a_whole_and_leaves_a_clean_directory(tmp_path, given, reason):
    before = await topics_after_a_start(tmp_path, declaration(partitions=2))
    name = given.pop("name", "orders")
    bad = declaration(name, **given)
    both = Declaration((*declaration("fine").topics, *bad.topics))
    assert await refused(tmp_path, both) == (f"topics.toml: topic {name!r}: {reason}",)
    assert (tmp_path / CLEAN_MARKER).exists()
    with pytest.raises(DeclarationError) as refusal:
        await preview(tmp_path, both)
    assert refusal.value.reasons == (f"topics.toml: topic {name!r}: {reason}",)
    assert await topics_after_a_start(tmp_path, Declaration()) == before


async def test_more_partitions_than_a_node_has_room_for_are_refused_together(tmp_path, monkeypatch):
    await topics_after_a_start(tmp_path, declaration(partitions=2))
    monkeypatch.setattr("trio_broker.cluster.replication_control.MAX_PARTITIONS", 6)
    both = Declaration((*declaration(partitions=5).topics, *declaration("new", partitions=3).topics))
    assert await refused(tmp_path, both) == ("topics.toml: 6 new partitions beside 2 are more than the 6 of this node",)


async def test_a_broker_is_ready_once_what_is_declared_is_there(tmp_path, monkeypatch):
    seen: list[object] = []

    async def looked_at(broker, services):
        seen.append(await admin_status(broker, "/readyz"))
        seen.append(await declare(broker, services))

    declare = Broker._declare
    monkeypatch.setattr(Broker, "_declare", looked_at)
    broker = declaring(tmp_path, declaration(), admin_listener="127.0.0.1:0")
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        assert seen == [503, None]
        assert "orders" in broker.services.metadata_cache.image.topics
        assert await admin_status(broker, "/readyz") == 200
        broker.stop()


async def test_what_clients_change_later_is_not_recorded_as_declared(tmp_path):
    broker = declaring(tmp_path, declaration())
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        async with connected(broker) as client:
            await client.create_topic("other")
        assert [each.origin.channel.value for each in broker.services.changes.changes] == ["declaration", "kafka"]
        broker.stop()


async def test_a_preview_shows_the_difference_and_changes_nothing(tmp_path):
    declared = declaration(partitions=2, settings={"retention.ms": "5"})
    assert await preview(tmp_path / "new", declared) == ["+ orders: 2 partitions, retention.ms=5"]
    assert not (tmp_path / "new").exists()
    await topics_after_a_start(tmp_path, declared)
    assert await preview(tmp_path, declared) == ["= orders"]
    assert await preview(tmp_path, declaration(settings={"retention.ms": "6"})) == ["~ orders: retention.ms 5 → 6"]
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_a_preview_refuses_directories_that_a_broker_has_open(tmp_path):
    async with running(tmp_path):
        with pytest.raises(DataDirectoryError, match="is in use by another broker"):
            await preview(tmp_path, declaration())


def first_user(name: str, password: str) -> Declaration:
    credential = DeclaredCredential(
        name=name, mechanism=ScramMechanism.SHA_512, password=password, iterations=4096, origin="--add-scram"
    )
    return Declaration(first_credentials=(credential,))


async def is_password(directory, declared: Declaration, name: str, password: str) -> bool:
    """Whether the user has that password after a start with ``declared``."""
    broker = declaring(directory, declared)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        kept = find_credential(broker.services.metadata_cache.image, name, ScramMechanism.SHA_512)
        broker.stop()
    return kept is not None and is_kept(first_user(name, password).first_credentials[0], kept)


async def test_the_first_user_is_there_before_clients_are_served_and_a_later_start_changes_nobody(tmp_path, caplog):
    caplog.set_level("INFO")
    assert await preview(tmp_path, first_user("admin", "one")) == ["+ user admin: SCRAM-SHA-512"]
    assert await is_password(tmp_path, first_user("admin", "one"), "admin", "one")
    assert "declared by --add-scram: + user admin: SCRAM-SHA-512" in caplog.text
    assert await preview(tmp_path, first_user("admin", "two")) == []
    assert await is_password(tmp_path, first_user("admin", "two"), "admin", "one")
    assert not await is_password(tmp_path, first_user("bob", "two"), "bob", "two")
    assert "no user of --add-scram is added: the cluster is not new" in caplog.text


AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def user_declaration(password: str = "secret", quota: float = 5.0, topic: str = "orders") -> Declaration:
    [credential] = first_user("bob", password).first_credentials
    user = DeclaredUser(
        name="bob",
        credential=credential,
        rights=(parse_right(f"write:{topic}"), group_right("billing")),
        quotas={"producer_byte_rate": quota},
        origin="cluster.toml",
    )
    return Declaration(users=(user,))


async def lines_of_a_start(directory, declared: Declaration, caplog) -> list[str]:
    """What a start has changed by what is declared."""
    caplog.clear()
    broker = declaring(directory, declared, **AUTHORIZED)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        broker.stop()
    return [each.getMessage().partition(": ")[2] for each in caplog.records if "declared by" in each.getMessage()]


async def test_a_user_has_rights_quotas_and_a_password_and_a_second_start_changes_nothing(tmp_path, caplog):
    caplog.set_level("INFO")
    rights = ["+ user bob: may write:orders", "+ user bob: may read:group:billing"]
    first = [*rights, "+ user bob: producer_byte_rate 5", "+ user bob: SCRAM-SHA-512"]
    declared = user_declaration()
    config = make_broker(tmp_path, None, **AUTHORIZED).config
    assert difference_lines(await preview_declaration(declared, config, real_runtime())) == first
    assert await lines_of_a_start(tmp_path, declared, caplog) == first
    assert await lines_of_a_start(tmp_path, declared, caplog) == []
    assert difference_lines(await preview_declaration(declared, config, real_runtime())) == ["= user bob"]
    assert "secret" not in caplog.text


async def test_what_a_declaration_says_anew_of_a_user_is_changed_and_what_it_leaves_out_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    await lines_of_a_start(tmp_path, user_declaration(), caplog)
    assert await lines_of_a_start(tmp_path, user_declaration("other", 6.0, "returns"), caplog) == [
        "+ user bob: may write:returns",
        "~ user bob: producer_byte_rate 5 → 6",
        "~ user bob: another password for SCRAM-SHA-512",
    ]
    assert await lines_of_a_start(tmp_path, user_declaration("other", 6.0), caplog) == []


async def test_denials_and_default_quotas_are_there_and_a_second_start_changes_nothing(tmp_path, caplog):
    caplog.set_level("INFO")
    file = b"""
[users."*"]
may_not = ["all:secret-*"]
[default_quotas]
users.request_percentage = 50
addresses.connection_creation_rate = 9
"""
    declared = read_declaration("cluster.toml", file)
    first = [
        "+ default quotas of users: request_percentage 50",
        "+ default quotas of addresses: connection_creation_rate 9",
        "+ user *: may not all:secret-*",
    ]
    config = make_broker(tmp_path, None, **AUTHORIZED).config
    assert difference_lines(await preview_declaration(declared, config, real_runtime())) == first
    assert await lines_of_a_start(tmp_path, declared, caplog) == first
    assert await lines_of_a_start(tmp_path, declared, caplog) == []
    done = ["= default quotas of users", "= default quotas of addresses", "= user *"]
    assert difference_lines(await preview_declaration(declared, config, real_runtime())) == done
    changed = read_declaration("cluster.toml", file.replace(b"50", b"60"))
    assert await lines_of_a_start(tmp_path, changed, caplog) == [
        "~ default quotas of users: request_percentage 50 → 60"
    ]
    image = image_at_next_start(real_runtime().disk, config)
    assert quotas_of(image).of_entities == {
        frozenset({("user", None)}): {"request_percentage": 60.0},
        frozenset({("ip", None)}): {"connection_creation_rate": 9.0},
    }
    [acl] = map(acl_of, acl_records(image).values())
    assert (acl.principal, acl.is_deny, acl.pattern_type, acl.host) == ("User:*", True, PatternType.PREFIXED, "*")


async def test_rights_without_an_authorizer_end_the_start(tmp_path):
    reason = "cluster.toml: user 'bob': rights have no effect without authorizer.class.name"
    assert set(await refused(tmp_path, user_declaration())) == {reason}


async def test_the_first_user_goes_before_all_else_that_is_declared(tmp_path, monkeypatch):
    """Else a crash would leave a cluster that is not new any more, and that nobody can enter."""

    async def crash(*_: object, validate_only: bool) -> list[str]:
        if not validate_only:
            raise OSError("the disk has failed")
        return []

    monkeypatch.setattr("trio_broker.cluster.declarations.change_topics", crash)
    declared = attrs.evolve(first_user("admin", "one"), topics=declaration().topics)
    await refused(tmp_path, declared)
    monkeypatch.undo()
    assert await is_password(tmp_path, Declaration(), "admin", "one")


async def test_a_start_that_was_cut_short_before_the_first_user_adds_it_at_the_next(tmp_path):
    await topics_after_a_start(tmp_path, Declaration())
    assert await is_password(tmp_path, first_user("admin", "one"), "admin", "one")
