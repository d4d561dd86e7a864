"""OAUTHBEARER, token by token."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.sasl.mechanisms import OAuthBearerSaslClient
from kafka_wire.schema import default_instance
from tests.security.sasl_conversation import Conversation, authenticator
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.failed_attempts import BURST
from trio_broker.security.sasl.oauthbearer import InvalidToken, OAuthBearerSaslServer, parse_initial_response
from trio_broker.security.sasl.sasl_server import Identity, SaslFailure
from trio_broker.security.sasl.server_authenticator import SaslState

REFUSED = b'{"status":"invalid_token"}'


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def talk(clock) -> Conversation:
    """With a listener on which a good token holds for ten seconds, whose user it names."""

    def validate(token: str) -> Identity:
        if not token.startswith("good-"):
            raise InvalidToken("it is not good")
        return Identity(token.removeprefix("good-"), clock.now_ms() + 10_000)

    server = authenticator(clock)
    server.mechanisms = {"OAUTHBEARER": lambda: OAuthBearerSaslServer(validate)}
    talk = Conversation(server)
    talk.handshake("OAUTHBEARER")
    return talk


def test_a_session_ends_with_its_token_and_begins_again_with_another_one_of_the_same_user(talk, clock):
    step, answer = talk.token(OAuthBearerSaslClient("good-alice").first_token())
    assert (step.user, answer.auth_bytes, answer.session_lifetime_ms) == ("alice", b"", 10_000)
    clock.advance(9)
    talk.handshake("OAUTHBEARER")
    assert talk.token(OAuthBearerSaslClient("good-alice").first_token())[0].user == "alice"
    clock.advance(2)
    talk.handshake("OAUTHBEARER")
    step, answer = talk.token(OAuthBearerSaslClient("good-bob").first_token())
    assert "Cannot change principals" in answer.error_message


@pytest.mark.parametrize(("max_reauth_ms", "expected"), [(4000, 4000), (60_000, 10_000)])
def test_the_longest_session_of_the_settings_shortens_that_of_a_token_and_does_not_prolong_it(
    talk, max_reauth_ms, expected
):
    talk.server.limits = attrs.evolve(talk.server.limits, max_reauth_ms={"OAUTHBEARER": max_reauth_ms})
    _, answer = talk.token(OAuthBearerSaslClient("good-alice").first_token())
    assert answer.session_lifetime_ms == expected


def test_a_session_whose_client_brings_no_other_token_is_closed(talk, clock):
    talk.token(OAuthBearerSaslClient("good-alice").first_token())
    clock.advance(10.1)
    assert "the session has expired" in talk.send(default_instance(MetadataRequest), 0)[0].failure


def test_a_refused_token_is_answered_in_json_and_its_acknowledgement_with_the_failure(talk):
    client = OAuthBearerSaslClient("bad")
    step, answer = talk.token(client.first_token())
    assert (step.user, step.failure, answer.error_code, answer.auth_bytes) == (None, None, ErrorCode.NONE, REFUSED)
    step, answer = talk.token(client.evaluate(answer.auth_bytes))
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED.decode())
    assert step.failure == "it is not good (OAUTHBEARER, authentication)"


def test_the_reason_of_a_refusal_is_noted_too_if_the_client_goes_on_as_if_it_were_none(talk):
    """As aiokafka 0.14 does."""
    talk.token(OAuthBearerSaslClient("bad").first_token())
    step, _ = talk.send(default_instance(MetadataRequest), 1)
    assert step.failure == "unexpected Metadata request during authentication, behind a refusal: it is not good"


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_a_refused_token_is_one_failed_attempt_acknowledged_or_not(talk, is_acknowledged):
    attempts = talk.server.attempts
    for _ in range(BURST):
        assert not attempts.is_exhausted(talk.server.host)
        talk.server.state = SaslState.HANDSHAKE
        talk.handshake("OAUTHBEARER")
        talk.token(OAuthBearerSaslClient("bad").first_token())
        if is_acknowledged:
            talk.token(b"\x01")
    assert attempts.is_exhausted(talk.server.host)


def test_after_a_refusal_no_other_token_is_looked_at(talk):
    talk.token(OAuthBearerSaslClient("bad").first_token())
    step, answer = talk.token(OAuthBearerSaslClient("good-alice").first_token())
    assert (step.user, answer.error_code) == (None, ErrorCode.SASL_AUTHENTICATION_FAILED)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"n,,\x01auth=Bearer a.b-_~+/c==\x01\x01", ("", "a.b-_~+/c==")),
        (b"n,a=alice,\x01auth=bearer   token\x01\x01", ("alice", "token")),
        (b"n,a=a=2Cb=3D,\x01traceId=x y=1\x01auth=BEARER t\x01more=2\x01\x01", ("a,b=", "t")),
    ],
)
def test_the_first_token_has_a_bearer_token_and_extensions(response, expected):
    assert parse_initial_response(response) == expected


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_what_is_not_of_that_form_fails_and_is_not_repeated(response):
    with pytest.raises(SaslFailure, match="OAUTHBEARER"):
        parse_initial_response(response)


def test_nobody_acts_as_another_user(talk):
    step, answer = talk.token(b"n,a=admin,\x01auth=Bearer good-alice\x01\x01")
    assert "authorization id that is different" in answer.error_message
    assert step.user is None


def test_the_authorization_id_may_be_that_of_the_token(talk):
    assert talk.token(b"n,a=alice,\x01auth=Bearer good-alice\x01\x01")[0].user == "alice"
