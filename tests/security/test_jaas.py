"""The line of a login module and its options."""

from __future__ import annotations

import pytest

from kafka_wire.sasl.mechanisms import SaslCredentials
from trio_broker.security.sasl.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_line_is_read_as_kafka_reads_it():
    entry = parse_jaas(f"""
        {MODULE} required
        username = "a=b; c"  password='it' user_bob="say \\"hi\\"" user_="nobody" serviceName=kafka;
    """)
    assert entry.login_module == MODULE
    assert entry.options == {
        "username": "a=b; c",
        "password": "it",
        "user_bob": 'say "hi"',
        "user_": "nobody",
        "serviceName": "kafka",
    }
    assert entry.users == {"bob": 'say "hi"', "": "nobody"}
    assert "hi" not in repr(entry)


def test_a_line_is_read_once_and_not_at_each_login():
    text = f'{MODULE} required user_bob="bob-secret";'
    assert parse_jaas(text).users is parse_jaas(text).users


@pytest.mark.parametrize(
    ("option", "is_token"),
    [("", False), ("tokenauth=false", False), ('tokenauth="true"', True), ("tokenauth=True", True)],
)
def test_credentials_may_be_those_of_a_delegation_token(option, is_token):
    entry = parse_jaas(f"{MODULE} required username=id password=hmac {option};")
    assert entry.credentials("SCRAM-SHA-512") == SaslCredentials("SCRAM-SHA-512", "id", "hmac", is_token)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "form"),
        (MODULE, "form"),
        (f"{MODULE} required", "form"),
        (f"{MODULE} perhaps a=b;", "form"),
        (f"{MODULE} required a=b", "semicolon"),
        (f"{MODULE} required a=;", "options"),
        (f"{MODULE} required a b;", "options"),
        (f'{MODULE} required a="secret;', "quotation mark"),
        (f"{MODULE} required a=b; {MODULE} required c=d;", "options"),
    ],
)
def test_a_line_that_is_none_is_refused_without_its_secrets(text, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)
