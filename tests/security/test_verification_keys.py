"""Where the keys of tokens come from, and when they are fetched again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio
from joserfc.jwk import OctKey, RSAKey

from tests.security.oauth_tokens import key_named, key_set
from trio_broker.security.sasl.verification_keys import KeysUnavailable, VerificationKeys, parse_key_set


def names(text: bytes) -> list[str | None]:
    return [key.kid for key in parse_key_set(text).keys]


def test_what_cannot_verify_a_signature_is_left_out():
    shared = OctKey.generate_key(256, {"kid": "shared"}).as_dict(private=True)
    listed = json.loads(key_set(key_named("a"), key_named("b")))["keys"]
    short = RSAKey.generate_key(2048, {"kid": "short"}).as_dict(private=False) | {"n": "AQ" * 100}
    others = [shared, short, {"kty": "EC", "kid": "torn"}, {"kty": "new"}, {**listed[1], "use": "enc"}, 7]
    assert names(json.dumps({"keys": [*others, listed[0]]}).encode()) == ["a"]
    assert names(b'{"keys": []}') == []


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": {}}', b"<html>", b"[" * 100_000])
def test_what_is_no_set_is_refused(text):
    with pytest.raises(KeysUnavailable, match="it is no JSON Web Key Set"):
        parse_key_set(text)


class Endpoint:
    """Answers with one set after the other; None for none. The last one stays."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers: Iterator[bytes | None] = iter(answers)
        self.latest: bytes | None = None
        self.asked_at: list[float] = []
        self.keys = VerificationKeys("here", self.fetch, 3600, 0.1, 1)

    async def fetch(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked_at.append(round(trio.current_time() - self.began, 3))
        self.latest = next(self.answers, self.latest)
        if self.latest is None:
            raise KeysUnavailable("nobody listens there")
        return self.latest

    async def run(self, seconds: float, ask_at: tuple[float, ...] = ()) -> None:
        self.began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keys.run)
            for at in ask_at:
                await trio.sleep_until(self.began + at)
                self.keys.refresh_soon()
            await trio.sleep_until(self.began + seconds)
            nursery.cancel_scope.cancel()


async def test_a_fetch_that_fails_is_tried_again_with_growing_pauses_and_the_keys_stay(autojump_clock, caplog):
    endpoint = Endpoint(None, None, None, None, None, None, key_set(key_named("b")))
    endpoint.keys.take(key_set(key_named("a")))
    await endpoint.run(2.0)
    assert endpoint.asked_at == [0.0, 0.1, 0.3, 0.7, 1.5]
    assert [key.kid for key in endpoint.keys.keys] == ["a"]
    assert "nobody listens there; the keys before stay in use" in caplog.text
    await endpoint.run(2.0)
    assert [key.kid for key in endpoint.keys.keys] == ["b"]


async def test_keys_are_fetched_at_their_interval_and_sooner_for_an_unknown_one_within_a_bound(autojump_clock):
    endpoint = Endpoint(key_set(key_named("a")))
    await endpoint.run(7300, ask_at=(1.0, 2.0, 3.0, 100.0))
    assert endpoint.asked_at == [0.0, 10.0, 100.0, 3700.0, 7300.0][: len(endpoint.asked_at)]
    assert len(endpoint.asked_at) >= 4


async def test_an_empty_set_counts(autojump_clock, caplog):
    endpoint = Endpoint(key_set(key_named("a")), b'{"keys": []}')
    await endpoint.run(20, ask_at=(1.0,))
    assert not endpoint.keys.keys
    assert "lets nobody in" in caplog.text
