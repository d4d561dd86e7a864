"""SCRAM: the examples of the RFCs, and each step that a server must not leave out."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.errors import WireError
from kafka_wire.sasl.mechanisms import ScramSaslClient
from kafka_wire.sasl.scram import MAX_MESSAGE_BYTES, ClientFirst, ScramMechanism, ServerFirst, escaped, xor
from tests.security.sasl_conversation import (
    PASSWORDS,
    SERVER_NONCE,
    SHA_256,
    credential_of,
    scram_server,
)
from trio_broker.security.sasl.sasl_server import Identity, SaslFailure
from trio_broker.security.sasl.scram import ScramSaslServer, TokenLogin, token_credential


def client(user: str = "alice", password: str = PASSWORDS["alice"], nonce: str = "client") -> ScramSaslClient:
    return ScramSaslClient(SHA_256, user, password, nonce)


def final_token(server: ScramSaslServer, user: str = "alice") -> bytes:
    """The last token of a client that does everything right."""
    asking = client(user)
    token = asking.evaluate(server.evaluate(asking.first_token()).token)
    assert token is not None
    return token


def test_the_example_of_rfc_7677_is_spoken_on_both_sides():
    nonce, salt = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = SHA_256.credential(SHA_256.salted_password("pencil", salt, 4096), salt, 4096)
    server = ScramSaslServer(SHA_256, lambda *_: credential, nonce, b"")
    asking = ScramSaslClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert asking.first_token() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.evaluate(asking.first_token()).token
    assert challenge == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = asking.evaluate(challenge)
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p={proof}".encode()
    done = server.evaluate(final)
    assert done.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert done.identity is not None
    assert done.identity.user == "user"
    assert asking.evaluate(done.token) is None


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.sampled_from(ScramMechanism))
def test_any_name_and_password_are_proved_to_each_other(name, mechanism):
    salted = mechanism.hash(name.encode())
    credential = mechanism.credential(mechanism.salted_password(name, salted, 4096), salted, 4096)
    server = ScramSaslServer(mechanism, lambda user, _: credential if user == name else None, "server", b"")
    asking = ScramSaslClient(mechanism, name, name, "client")
    final = asking.evaluate(server.evaluate(asking.first_token()).token)
    assert final is not None
    done = server.evaluate(final)
    assert done.identity is not None
    assert done.identity.user == name
    assert asking.evaluate(done.token) is None


def test_a_wrong_password_is_refused():
    server, asking = scram_server(), client(password="wrong")
    final = asking.evaluate(server.evaluate(asking.first_token()).token)
    assert final is not None
    with pytest.raises(SaslFailure, match="wrong password: 'alice'"):
        server.evaluate(final)


def test_a_user_who_does_not_exist_gets_the_same_salt_each_time_and_fails_at_the_end():
    """What is answered to the first token shows nobody which users there are."""
    first, second, other = (scram_server().evaluate(client(user).first_token()).token for user in ("eve", "eve", "Eve"))
    assert first == second != other
    assert ServerFirst.parse(first).iterations == 4096
    # A number to the base of 36, as the salts of Kafka's tools: other digits would give nobody away.
    salts = [ServerFirst.parse(each).salt for each in (first, other)]
    assert [0 <= int(salt, 36) < 2**130 for salt in salts] == [True, True]
    assert set(b"0189") & set(b"".join(salts))
    server = scram_server()
    with pytest.raises(SaslFailure, match="no such user: 'eve'"):
        server.evaluate(final_token(server, "eve"))


def test_a_proof_with_the_keys_of_nobody_is_refused():
    """The keys of a user who does not exist are known, so a proof that fits them must not count."""
    server = scram_server()
    asking = client("eve")
    first = ServerFirst.parse(server.evaluate(asking.first_token()).token)
    signed = f"c=biws,r={first.nonce}"
    signature = SHA_256.hmac(bytes(32), f"n=eve,r=client,{first.text},{signed}".encode())
    with pytest.raises(SaslFailure, match="no such user"):
        server.evaluate(f"{signed},p={b64encode(signature).decode()}".encode())


def test_a_nonce_behind_the_client_s_own_is_taken_as_librdkafka_before_2_6_1_sends_it():
    server, asking = scram_server(), client()
    first = ServerFirst.parse(server.evaluate(asking.first_token()).token)
    salted = SHA_256.salted_password(PASSWORDS["alice"], first.salt, first.iterations)
    signed = f"c=biws,r=client{first.nonce}"
    client_key = SHA_256.client_key(salted)
    signature = SHA_256.hmac(SHA_256.hash(client_key), f"n=alice,r=client,{first.text},{signed}".encode())
    done = server.evaluate(f"{signed},p={b64encode(xor(client_key, signature)).decode()}".encode())
    assert done.identity is not None
    assert done.identity.user == "alice"


@pytest.mark.parametrize(
    ("change", "to", "reason"),
    [
        (b"r=clientserver", b"r=client", "nonce"),
        (b"r=clientserver", b"r=xclientserver", "nonce"),
        (b"r=clientserver", b"r=clientserverx", "nonce"),
        (b"c=biws", b"c=" + b64encode(b"n,a=bob,"), "another beginning"),
        (b"c=biws", b"c=" + b64encode(b"y,,"), "another beginning"),
        (b",p=", b",p=AAAA", "wrong password"),
        (b",p=", b",q=", "no SCRAM client final message"),
        (b"c=biws", b"x=1,c=biws", "no SCRAM client final message"),
    ],
)
def test_a_changed_last_token_is_refused(change, to, reason):
    server = scram_server()
    token = final_token(server)
    assert change in token
    with pytest.raises(SaslFailure, match=reason):
        server.evaluate(token.replace(change, to))


@pytest.mark.parametrize(
    "token",
    [
        b"p=tls-unique,,n=alice,r=a",
        b"y,,n=alice,r=a",
        b"n,,m=mandatory,n=alice,r=a",
        b"n,,n=al=ice,r=a",
        b"n,,n=,r=a",
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"n,,n=\xff,r=a",
        b"",
    ],
)
def test_a_first_token_that_is_none_is_refused(token):
    with pytest.raises(SaslFailure, match="no SCRAM client first message"):
        scram_server().evaluate(token)


def test_a_token_that_would_take_long_to_read_is_refused_unread():
    frame = b"n,,n=%s,r=client"
    name = b"a" * (MAX_MESSAGE_BYTES - len(frame % b""))
    assert scram_server().evaluate(frame % name).identity is None
    with pytest.raises(SaslFailure, match=f"at most {MAX_MESSAGE_BYTES} are read"):
        scram_server().evaluate(frame % (name + b"a"))


def test_nobody_acts_as_another_user():
    with pytest.raises(SaslFailure, match="authorization id") as refused:
        scram_server().evaluate(b"n,a=bob,n=alice,r=client")
    assert refused.value.for_client is not None
    assert scram_server().evaluate(b"n,a=alice,n=alice,r=client").identity is None


def test_a_credential_that_is_too_cheap_to_guess_is_not_used():
    weak = SHA_256.credential(b"salted", b"salt", 4095)
    with pytest.raises(SaslFailure, match="4095 iterations"):
        ScramSaslServer(SHA_256, lambda *_: weak, "server", b"").evaluate(client().first_token())


def token_server() -> ScramSaslServer:
    """Knows the delegation token ``t`` of alice."""
    known = {"t": TokenLogin("alice", "token-secret", expires_at_ms=7)}
    return ScramSaslServer(SHA_256, credential_of, SERVER_NONCE, b"key", known.get)


def token_final(server: ScramSaslServer, token_id: str, password: str) -> bytes:
    """The last token of a client with a delegation token."""
    asking = ScramSaslClient(SHA_256, token_id, password, "client", is_token=True)
    final = asking.evaluate(server.evaluate(asking.first_token()).token)
    assert final is not None
    return final


def test_a_client_with_a_delegation_token_is_its_owner_until_it_ends():
    server = token_server()
    done = server.evaluate(token_final(server, "t", "token-secret"))
    assert done.identity == Identity("alice", expires_at_ms=7, by_token=True)


def test_the_key_of_a_token_is_computed_once_and_that_of_an_id_without_a_token_never():
    """It takes milliseconds of the event loop, and anybody may send ids."""
    token_credential.cache_clear()
    for token_id in ("unknown", "t", "t", "alice"):
        token_final(token_server(), token_id, "wrong")
    assert token_credential.cache_info().misses == 1


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("t", "wrong", "wrong password: 't'"),
        ("unknown", "token-secret", "no such token: 'unknown'"),
        ("alice", PASSWORDS["alice"], "no such token: 'alice'"),
    ],
)
def test_a_token_is_no_password_and_a_password_no_token(name, password, reason):
    server = token_server()
    with pytest.raises(SaslFailure, match=reason):
        server.evaluate(token_final(server, name, password))


def test_a_token_logs_nobody_in_who_does_not_say_that_it_is_one():
    server = token_server()
    asking = client("t", "token-secret")
    final = asking.evaluate(server.evaluate(asking.first_token()).token)
    assert final is not None
    with pytest.raises(SaslFailure, match="no such user: 't'"):
        server.evaluate(final)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=other,s=c2FsdA==,i=4096", "does not continue"),
        ("r=client,s=c2FsdA==,i=4096", "does not continue"),
        ("r=clientserver,s=c2FsdA==,i=4095", "4095 iterations"),
        ("r=clientserver,s=c2FsdA==,i=999999999", "999999999 iterations"),
        ("r=clientserver,s=c2FsdA==,i=4096000000000", "no SCRAM server first"),
        ("e=unknown-user", "no SCRAM server first"),
    ],
)
def test_a_client_takes_no_other_beginning_of_a_server(challenge, reason):
    """The number of iterations is the server's choice, and costs the client."""
    with pytest.raises(WireError, match=reason):
        client().evaluate(challenge.encode())


@pytest.mark.parametrize(
    ("answer", "reason"), [(b"v=AAAA", "does not know"), (b"e=other-error", "refuses: other-error"), (b"", "final")]
)
def test_a_client_does_not_believe_a_server_that_does_not_know_the_password(answer, reason):
    asking, server = client(), scram_server()
    asking.evaluate(server.evaluate(asking.first_token()).token)
    with pytest.raises(WireError, match=reason):
        asking.evaluate(answer)


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_name_is_read_as_it_was_written(name):
    assert ClientFirst.parse(f"n,,n={escaped(name)},r=a".encode()).user == name


def test_the_secret_parts_of_a_credential_are_not_shown():
    credential = credential_of("alice", SHA_256)
    assert credential is not None
    assert repr(credential.stored_key) not in repr(credential)
