"""Which tokens of OAUTHBEARER are valid: nothing that the issuer has not signed for this cluster, and for now."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, rsa_key, signed
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.sasl.broker_jwt_validator import BrokerJwtValidator
from trio_broker.security.sasl.oauthbearer import MAX_TOKEN_BYTES, InvalidToken
from trio_broker.security.sasl.sasl_server import Identity
from trio_broker.security.sasl.verification_keys import VerificationKeys

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000


async def no_fetch() -> bytes:
    raise AssertionError("nothing is fetched here")


def validator(*published: Any, **changed: Any) -> BrokerJwtValidator:
    keys = VerificationKeys("here", no_fetch, 3600, 0.1, 10)
    keys.take(key_set(*(published or (key_named("a"), rsa_key("rsa")))))
    values: dict[str, Any] = {
        "audience": (AUDIENCE, "other"),
        "issuer": ISSUER,
        "sub_claim_name": "sub",
        "clock_skew_seconds": 30,
    }
    return BrokerJwtValidator(keys=keys, clock=ManualClock(NOW_MS), **values | changed)


def refusal(token: str, **changed: Any) -> str:
    with pytest.raises(InvalidToken) as raised:
        validator(**changed).validate(token)
    return str(raised.value)


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return ".".join((*(encoded(json.dumps(each).encode()) for each in (header, claims)), ""))


def test_a_token_of_its_issuer_for_this_cluster_says_who_it_is_and_until_when():
    for key, algorithm in ((key_named("a"), "ES256"), (rsa_key("rsa"), "RS256"), (rsa_key("rsa"), "PS512")):
        token = signed(claims_at(NOW_MS), key, algorithm, x5t="unused", typ="at+jwt")
        assert validator().validate(token) == Identity("alice", (NOW + 3600) * 1000)
    others = claims_at(NOW_MS, aud=["elsewhere", AUDIENCE], email=" bob ", nbf=NOW + 30, iat=NOW + 30, exp=NOW - 29)
    assert validator(sub_claim_name="email").validate(signed(others, key_named("a"))) == Identity(
        "bob", (NOW - 29) * 1000
    )
    # A scope of whatever form grants nothing.
    for scope in ("admin", ["admin"], " ", 7):
        assert validator().validate(signed(claims_at(NOW_MS, scope=scope), key_named("a"))).user == "alice"
    unnamed = signed(claims_at(NOW_MS, exp=10**400), key_named("a"), kid="a")
    assert validator(key_named("a")).validate(unnamed).expires_at_ms == 2**63 - 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": None}, "Missing claim: 'exp'"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": "9999999999"}, "'exp' must be"),
        ({"exp": float("nan")}, "'exp' must be"),
        ({"exp": True}, "'exp' must be"),
        ({"nbf": NOW + 31}, "not yet valid"),
        ({"iat": None}, "Missing claim: 'iat'"),
        ({"iat": NOW + 31}, "issued in the future"),
        ({"iss": None}, "Missing claim: 'iss'"),
        ({"iss": "https://issuer.example.evil"}, "Invalid claim: 'iss'"),
        ({"iss": [ISSUER]}, "'iss' must be"),
        ({"aud": None}, "Missing claim: 'aud'"),
        ({"aud": ""}, "Invalid claim: 'aud'"),
        ({"aud": []}, "Invalid claim: 'aud'"),
        ({"aud": "kafka"}, "Invalid claim: 'aud'"),
        ({"aud": {AUDIENCE: 1}}, "'aud' must be"),
        ({"sub": None}, "no user by its claim 'sub'"),
        ({"sub": " "}, "no user by its claim 'sub'"),
        ({"sub": ["alice"]}, "'sub' must be"),
    ],
)
def test_a_claim_that_is_missing_or_wrong_is_refused(changed, reason):
    assert reason in refusal(signed(claims_at(NOW_MS, **changed), key_named("a")))


def test_the_user_is_what_the_claim_of_the_settings_says_and_no_other():
    token = signed(claims_at(NOW_MS, sub="alice"), key_named("a"))
    assert refusal(token, sub_claim_name="email") == "the token says no user by its claim 'email'"


def test_what_is_not_signed_by_a_public_key_of_the_set_is_refused():
    claims = claims_at(NOW_MS)
    assert "'none' is not allowed" in refusal(unsigned({"alg": "none"}, claims))
    assert "'none' is not allowed" in refusal(unsigned({"alg": "none", "kid": "a"}, claims))
    # The public key, which everybody has, as the secret of a shared one (RFC 8725, 2.1).
    for key in (key_named("a"), rsa_key("rsa")):
        for secret in (key.as_pem(private=False), key.as_der(private=False), key_set(key)):
            text = unsigned({"alg": "HS256", "kid": key.kid}, claims).removesuffix(".")
            signature = encoded(hmac.digest(secret, text.encode(), "sha256"))
            assert "'HS256' is not allowed" in refusal(f"{text}.{signature}")
    other = key_named("other")
    assert "bad_signature" in refusal(signed(claims, other, kid="a"))
    assert "No key for kid: 'other'" in refusal(signed(claims, other))
    # Not the key that the token itself brings.
    assert "bad_signature" in refusal(signed(claims, other, kid="a", jwk=other.as_dict(private=False)))
    assert "invalid token" in refusal(signed(claims, rsa_key("rsa"), "RS256", kid="a"))
    assert "invalid token" in refusal(signed(claims, key_named("a"), b64=False, crit=["b64"]))


def test_without_a_name_the_key_is_not_guessed():
    token = signed(claims_at(NOW_MS), key_named("a"))
    _, claims, signature = token.split(".")
    assert "No key for kid" in refusal(".".join((encoded(b'{"alg":"ES256"}'), claims, signature)))


def test_a_token_of_an_unknown_key_has_the_set_fetched_again():
    one = validator()
    with pytest.raises(InvalidToken):
        one.validate(signed(claims_at(NOW_MS), key_named("rotated")))
    assert one.keys._asked.is_set()


def test_an_oversized_token_is_refused_before_it_is_read():
    token = signed(claims_at(NOW_MS, groups="x" * MAX_TOKEN_BYTES), key_named("a"))
    assert refusal(token) == f"the token has {len(token)} bytes, more than {MAX_TOKEN_BYTES}"


def test_a_validator_without_conditions_cannot_be_made():
    with pytest.raises(AssertionError):
        validator(audience=())
    with pytest.raises(AssertionError):
        validator(issuer="")


@given(st.one_of(st.text('abcA.=-_{}[]"10', max_size=80), st.integers(1, 5000).map(lambda n: f"{'W1tb' * n}.e30.e30")))
def test_whatever_is_no_token_is_refused(token):
    assert refusal(token)
