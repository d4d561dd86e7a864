"""The authorizer by entries: what Kafka's documentation says of single entries, and a model for any set of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import AclFilter, StandardAcl
from trio_broker.security.standard_authorizer import StandardAuthorizer

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
HOST = "10.1.2.3"
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def entry(
    name="orders", operation=READ, permission=ALLOW, *, type_=TOPIC, pattern=LITERAL, principal="User:alice", host="*"
):
    return StandardAcl(type_, name, pattern, principal, host, operation, permission)


def authorizer(*acls, super_users=(), allow_everyone=False):
    made = StandardAuthorizer(frozenset(super_users), allow_everyone_if_no_acl_found=allow_everyone)
    for number, acl in enumerate(acls):
        made.add(bytes([number]), acl)
    return made


def may(by, principal=ALICE, operation=READ, name="orders", *, type_=TOPIC, host=HOST):
    return by.authorize(principal, host, operation, type_, name)


@pytest.mark.parametrize(
    ("acls", "answer"),
    [
        ([], False),
        ([entry()], True),
        ([entry("*")], True),
        ([entry("ord", pattern=PREFIXED)], True),
        ([entry("orders", pattern=PREFIXED)], True),
        ([entry("ord")], False),
        ([entry("order", pattern=PREFIXED, type_=GROUP)], False),
        ([entry(principal="User:*")], True),
        ([entry(principal="Group:alice")], False),
        ([entry(operation=ALL)], True),
        ([entry(operation=WRITE)], False),
        ([entry(), entry("*", permission=DENY)], False),
        ([entry(), entry("o", ALL, DENY, pattern=PREFIXED, principal="User:*")], False),
        ([entry(), entry(permission=DENY, principal="User:bob")], True),
        ([entry(host=HOST)], True),
        ([entry(host="10.1.2.4")], False),
        ([entry(host="10.1.0.0/16")], True),
        ([entry(host="10.1.2.9/24")], True),
        ([entry(host="10.2.0.0/16")], False),
        ([entry(host="::ffff:10.1.2.3")], True),
        ([entry(), entry(permission=DENY, host="10.0.0.0/8")], False),
        ([entry(host="10.1.0.0/99")], False),
        ([entry(host="not/an/address")], False),
    ],
)
def test_what_entries_say_about_reading_orders(acls, answer):
    assert may(authorizer(*acls)) is answer


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_who_may_do_more_may_describe_and_who_may_not_still_may(operation):
    assert may(authorizer(entry(operation=operation)), operation=DESCRIBE)
    assert may(authorizer(entry(operation=DESCRIBE), entry(operation=operation, permission=DENY)), operation=DESCRIBE)


def test_who_may_change_settings_may_see_them():
    by = authorizer(entry(operation=AclOperation.ALTER_CONFIGS))
    assert may(by, operation=AclOperation.DESCRIBE_CONFIGS)
    assert not may(by, operation=DESCRIBE)


def test_a_super_user_may_do_what_is_denied_to_all():
    by = authorizer(entry("*", ALL, DENY, principal="User:*"), super_users=["User:alice"])
    assert may(by)
    assert not may(by, BOB)
    assert by.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)
    assert by.reason(ALICE, HOST, READ, TOPIC, "orders") == "super user"


def test_without_entries_about_a_resource_everybody_may_if_that_is_configured():
    by = authorizer(entry("pay", pattern=PREFIXED), entry(type_=GROUP), allow_everyone=True)
    assert may(by, BOB)
    assert not may(by, BOB, name="payments")
    assert not may(by, BOB, type_=GROUP)


def test_an_answer_does_not_outlive_the_entry_it_came_from():
    by = authorizer(entry())
    assert may(by)
    by.remove(b"\0")
    assert not may(by)
    by.add(b"\1", entry(host="10.0.0.0/8"))
    assert may(by)
    assert (
        by.reason(ALICE, HOST, READ, TOPIC, "orders") == "ALLOW User:alice from 10.0.0.0/8 READ on TOPIC:LITERAL:orders"
    )


def test_nothing_is_kept_of_a_principal_whose_entries_are_all_gone():
    by = authorizer(entry(), entry("ord", pattern=PREFIXED), entry(principal="User:bob"))
    for number in range(2):
        by.remove(bytes([number]))
    assert [owner for _, owner in by._by_principal] == ["User:bob"]


def test_of_two_entries_that_say_the_same_one_stays_when_the_other_goes():
    by = authorizer(entry(), entry())
    by.remove(b"\0")
    assert may(by)


@pytest.mark.parametrize(
    ("acls", "answer"),
    [
        ([], False),
        ([entry("t", WRITE)], True),
        ([entry("t", READ)], False),
        ([entry("t", WRITE, host="10.9.9.9")], False),
        ([entry("t", WRITE), entry("*", WRITE, DENY)], False),
        ([entry("topic", WRITE), entry("to", WRITE, DENY, pattern=PREFIXED)], False),
        ([entry("t", WRITE, pattern=PREFIXED), entry("to", WRITE, DENY, pattern=PREFIXED)], True),
        ([entry("t", WRITE), entry("t", WRITE, DENY)], False),
        ([entry("*", WRITE), entry("a", ALL, DENY, pattern=PREFIXED)], True),
    ],
)
def test_whether_there_is_any_topic_to_write_to(acls, answer):
    assert authorizer(*acls).authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC) is answer


# --- a model ---

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba"])
ACLS = st.builds(
    StandardAcl,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HOST, "10.1.0.0/16", "10.2.0.0/16"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def model(acls, operation, type_, name, *, allow_everyone):
    """The rules as they are written down, entry by entry."""
    about = [acl for acl in acls if acl.resource_type is type_ and acl.is_about(name)]
    found = {
        acl.permission_type
        for acl in about
        if acl.principal in ("User:alice", "User:*")
        and acl.host in ("*", HOST, "10.1.0.0/16")
        and (
            acl.operation in (ALL, operation)
            or (acl.permission_type is ALLOW and operation is DESCRIBE and acl.operation in (READ, WRITE))
        )
    }
    if found:
        return DENY not in found
    return allow_everyone and not about


@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | ACLS), max_size=12),
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.booleans(),
)
def test_answers_are_those_of_a_list_of_all_entries(changes, operation, type_, name, allow_everyone):
    by = authorizer(allow_everyone=allow_everyone)
    left: dict[int, StandardAcl] = {}
    for number, acl in changes:
        if acl is None:
            by.remove(bytes([number]))
            left.pop(number, None)
        else:
            by.add(bytes([number]), acl)
            left[number] = acl
        expected = model(left.values(), operation, type_, name, allow_everyone=allow_everyone)
        assert may(by, operation=operation, type_=type_, name=name) is expected


# --- filters ---


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        (PatternType.ANY, None, {"orders", "ord", "*"}),
        (PatternType.ANY, "ord", {"ord"}),
        (LITERAL, "orders", {"orders"}),
        (LITERAL, "ord", set()),
        (PREFIXED, None, {"ord"}),
        (PREFIXED, "orders", set()),
        (PatternType.MATCH, "orders", {"orders", "ord", "*"}),
        (PatternType.MATCH, "ordinary", {"ord", "*"}),
    ],
)
def test_a_filter_matches_names_literally_unless_it_asks_for_what_counts(pattern, name, matched):
    acls = [entry(), entry("ord", pattern=PREFIXED), entry("*")]
    asked = AclFilter(TOPIC, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
    assert {acl.resource_name for acl in acls if asked.matches(acl)} == matched


def test_a_number_that_is_not_known_is_unknown():
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert AclFilter(TOPIC, None, PatternType(77), None, None, READ, ALLOW).has_unknown
