"""The authentication of one connection, as a conversation of frames."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, request_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.sasl.mechanisms import SaslCredentials, ScramSaslClient
from kafka_wire.schema import default_instance
from tests.security.sasl_conversation import PASSWORDS, SHA_256, Conversation, authenticator
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.authenticators import MAX_LOGIN_BYTES, SaslAuthenticators
from trio_broker.security.sasl.oauthbearer import MAX_TOKEN_BYTES
from trio_broker.security.sasl.server_authenticator import SaslState


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def talk(clock) -> Conversation:
    return Conversation(authenticator(clock))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_chooses_a_mechanism_and_logs_in(talk, version):
    step, answer = talk.handshake("PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
    assert (step.user, step.failure) == (None, None)
    step, answer = talk.token(b"\0alice\0alice-secret", version)
    assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (ErrorCode.NONE, None, 0)
    assert (step.user, step.failure, talk.server.state) == ("alice", None, SaslState.COMPLETE)
    assert talk.send(default_instance(MetadataRequest), 0) == (None, None)


def test_scram_takes_two_tokens(talk):
    talk.handshake("SCRAM-SHA-256")
    client = ScramSaslClient(SHA_256, "bob", PASSWORDS["bob"], "client")
    step, answer = talk.token(client.first_token())
    assert (step.user, answer.error_code) == (None, ErrorCode.NONE)
    step, answer = talk.token(client.evaluate(answer.auth_bytes))
    assert (step.user, answer.error_code) == ("bob", ErrorCode.NONE)
    assert client.evaluate(answer.auth_bytes) is None


def test_after_a_handshake_of_version_0_the_tokens_have_no_header(talk):
    talk.handshake("PLAIN", version=0)
    assert talk.server.min_frame_bytes == 0
    step = talk.server.receive(memoryview(b"\0alice\0alice-secret"))
    assert (step.answer, step.user) == ([b""], "alice")
    assert talk.server.min_frame_bytes == 8


def test_a_refused_token_without_a_header_is_not_answered(talk):
    talk.handshake("PLAIN", version=0)
    step = talk.server.receive(memoryview(b"\0alice\0wrong"))
    assert (step.answer, step.failure) == (None, "wrong password: 'alice' (PLAIN, authentication)")


def test_an_unknown_mechanism_is_refused_with_those_that_there_are(talk):
    step, answer = talk.handshake("GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ["PLAIN", "SCRAM-SHA-256"],
    )
    assert step.failure == "Unsupported SASL mechanism 'GSSAPI'"


@pytest.mark.parametrize(
    ("token", "for_client"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0eve\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0eve\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 5"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (
            b"\xff\0\xff",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
        ),
    ],
)
def test_what_a_client_learns_of_a_refusal(talk, token, for_client):
    talk.handshake("PLAIN")
    step, answer = talk.token(token)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, for_client)
    assert step.failure is not None
    assert "secret" not in step.failure
    assert talk.server.state is SaslState.FAILED


def test_scram_gives_no_reason(talk):
    talk.handshake("SCRAM-SHA-256")
    client = ScramSaslClient(SHA_256, "eve", "x", "client")
    final = client.evaluate(talk.token(client.first_token())[1].auth_bytes)
    _, answer = talk.token(final)
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_password_is_right_where_the_comparison_in_constant_time_says_so(talk, monkeypatch, mechanism):
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: True)
    client = SaslCredentials(mechanism, "alice", "wrong").client(bytes)
    talk.handshake(mechanism)
    step, answer = talk.token(client.first_token())
    if mechanism != "PLAIN":
        step, answer = talk.token(client.evaluate(answer.auth_bytes))
    assert step.user == "alice"


def test_versions_are_answered_before_the_login_and_nothing_else(clock):
    talk = Conversation(authenticator(clock))
    assert talk.send(default_instance(ApiVersionsRequest), 4) == (None, None)
    for request, version in ((default_instance(MetadataRequest), 1), (SaslAuthenticateRequest(auth_bytes=b""), 0)):
        step, answer = Conversation(authenticator(clock)).send(request, version)
        assert answer is None
        assert step.failure.startswith("unexpected")
    talk.handshake("PLAIN")
    step, answer = talk.send(default_instance(ApiVersionsRequest), 0)
    assert (answer, step.failure) == (None, "unexpected ApiVersions request during authentication")


def test_a_session_ends_unless_its_client_logs_in_again(clock):
    talk = Conversation(authenticator(clock, max_reauth_ms=60_000))
    _, answer = talk.log_in()
    assert answer.session_lifetime_ms == 60_000
    clock.advance(59)
    step, answer = talk.log_in()
    assert (step.user, answer.session_lifetime_ms) == ("alice", 60_000)
    clock.advance(60)
    assert talk.send(default_instance(MetadataRequest), 0) == (None, None)
    clock.advance(0.1)
    step, answer = talk.send(default_instance(MetadataRequest), 0)
    assert (answer, step.failure) == (None, "the session has expired, and its client did not authenticate again")


def test_an_expired_session_can_be_renewed(clock):
    """The client's first request after its end is what counts, and that may be the handshake."""
    talk = Conversation(authenticator(clock, max_reauth_ms=60_000))
    talk.log_in()
    clock.advance(61)
    assert talk.log_in()[0].user == "alice"


def test_a_second_login_within_a_second_is_out_of_place(clock):
    """It reaches the handlers, which answer that the state is wrong."""
    talk = Conversation(authenticator(clock))
    talk.log_in()
    clock.advance(0.5)
    assert talk.handshake("PLAIN") == (None, None)


def test_a_client_stays_who_it_was(clock):
    talk = Conversation(authenticator(clock))
    talk.log_in("alice")
    clock.advance(1)
    step, answer = talk.log_in("bob")
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert step.user is None
    assert step.failure is not None


def test_a_client_stays_with_its_mechanism(clock):
    talk = Conversation(authenticator(clock))
    talk.log_in("alice")
    clock.advance(1)
    assert talk.handshake("SCRAM-SHA-256")[1].error_code == ErrorCode.NONE
    step, answer = talk.token(b"n,,n=alice,r=client")
    assert answer.error_message == (
        "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    )
    assert step.failure is not None


def test_no_request_is_served_in_the_middle_of_a_second_login(clock):
    talk = Conversation(authenticator(clock))
    talk.log_in()
    clock.advance(1)
    talk.handshake("PLAIN")
    step, _ = talk.send(default_instance(MetadataRequest), 0)
    assert step.failure == "unexpected Metadata request during re-authentication"


def a_frame(api_key: int, version: int, body: bytes) -> bytes:
    return request_header(RequestHeader(api_key, version, 1, "c")) + body


SASL_FRAMES = st.one_of(
    st.binary(max_size=64),
    st.builds(a_frame, st.sampled_from([17, 18, 36, 3]), st.integers(-2, 4), st.binary(max_size=64)),
    st.builds(
        lambda mechanism, version: a_frame(
            17, version, encode_bytes(SaslHandshakeRequest(mechanism=mechanism), version)
        ),
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "x"]),
        st.integers(0, 1),
    ),
    st.builds(
        lambda token, version: a_frame(36, version, encode_bytes(SaslAuthenticateRequest(auth_bytes=token), version)),
        st.one_of(
            st.binary(max_size=64),
            st.from_regex(rb"n,,n=[a-z=,]{1,4},r=[a-z]{1,3}", fullmatch=True),
            st.from_regex(rb"c=biws,r=[a-z]{1,3}server,p=[A-Z]{4}", fullmatch=True),
            st.just(b"\0alice\0wrong"),
        ),
        st.integers(0, 2),
    ),
)


@given(st.lists(SASL_FRAMES, max_size=6))
def test_whatever_comes_without_a_password_ends_in_a_refusal_and_raises_nothing(frames):
    server = authenticator(ManualClock())
    for frame in frames:
        step = server.receive(memoryview(frame))
        assert not server.is_authenticated
        if step is None:
            assert int.from_bytes(frame[:2], "big") == ApiKey.API_VERSIONS
        else:
            assert step.user is None
            if step.failure is not None:
                return


def test_settings_changed_to_what_nobody_can_log_in_by_end_a_handshake_with_their_fault(clock):
    key = "listener.name.clients.plain.sasl.jaas.config"
    config = BrokerConfig({"sasl.enabled.mechanisms": "PLAIN,GSSAPI", key: "nonsense"})
    authenticators = SaslAuthenticators(config, clock, random.Random(1))
    for mechanism, failure in (("PLAIN", f"{key}: it must be of the form"), ("GSSAPI", "Unsupported SASL mechanism")):
        server = authenticators.new_authenticator("CLIENTS", "10.0.0.1", 2000)
        step, _ = Conversation(server).handshake(mechanism)
        assert step.failure.startswith(failure)
        assert server.state is SaslState.FAILED


@pytest.mark.parametrize(
    ("settings", "max_frame_bytes"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}, MAX_LOGIN_BYTES),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, MAX_LOGIN_BYTES + MAX_TOKEN_BYTES),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.server.max.receive.size": "1000"}, 1000),
    ],
)
def test_a_frame_before_a_login_is_no_larger_than_its_mechanisms_need(clock, settings, max_frame_bytes):
    authenticators = SaslAuthenticators(BrokerConfig(settings), clock, random.Random(1))
    assert authenticators.new_authenticator("CLIENTS", "10.0.0.1", 1_000_000).max_frame_bytes == max_frame_bytes
