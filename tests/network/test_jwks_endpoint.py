"""Where the keys of OAUTHBEARER come from, and what a broker does not start without."""

from __future__ import annotations

import ssl
import sys
from functools import partial
from pathlib import Path

import outcome
import pytest
import trio
import trustme

from tests.security.oauth_tokens import key_named, key_set
from trio_broker.broker import Broker
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.network.http_client import MAX_ANSWER_BYTES
from trio_broker.network.jwks_endpoint import new_jwt_validator
from trio_broker.runtime.real import real_runtime
from trio_broker.security.sasl.broker_jwt_validator import BrokerJwtValidator
from trio_broker.security.sasl.verification_keys import MAX_KEYS_BYTES, KeysUnavailable

KEY = "sasl.oauthbearer."
SETTINGS = {f"{KEY}expected.audience": "kafka", f"{KEY}expected.issuer": "issuer", f"{KEY}jwks.endpoint.url": "x:"}


def validator(url: str) -> BrokerJwtValidator:
    config = BrokerConfig(SETTINGS | {f"{KEY}jwks.endpoint.url": url})
    return new_jwt_validator(config.sasl, real_runtime())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key set.json"
    path.write_bytes(key_set(key_named("a")))
    return path


@pytest.mark.parametrize("missing", SETTINGS)
def test_a_broker_does_not_start_where_a_token_would_not_be_checked(missing):
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **{name: text for name, text in SETTINGS.items() if name != missing},
    }
    with pytest.raises(ConfigError, match=rf"{missing} is not set"):
        Broker(BrokerConfig(settings))


def test_a_broker_without_the_library_says_how_to_have_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "trio_broker.network.jwks_endpoint", raising=False)
    monkeypatch.delitem(sys.modules, "trio_broker.security.sasl.broker_jwt_validator", raising=False)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER", **SETTINGS}
    with pytest.raises(ConfigError, match=r"pip install 'trio-broker\[oauth\]'"):
        Broker(BrokerConfig(settings))


async def test_a_file_is_read_at_the_start_and_again(file):
    one = validator(file.as_uri())
    assert [key.kid for key in one.keys.keys] == ["a"]
    file.write_bytes(key_set(key_named("b")))
    one.keys.take(await one.keys.fetch())
    assert [key.kid for key in one.keys.keys] == ["b"]
    file.unlink()
    with pytest.raises(KeysUnavailable, match="No such file"):
        await one.keys.fetch()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///nowhere", "/nowhere: No such file or directory"),
        ("file://server/keys", "name https://… or file:///…"),
        ("http://issuer.example/keys", "keys are fetched by https"),
        ("https://user@issuer.example/keys", "name https://… or file:///…"),
        ("ftp://issuer.example/keys", "name https://… or file:///…"),
        ("http://[", "name https://… or file:///…"),
    ],
)
def test_other_places_are_refused_at_the_start(url, reason):
    with pytest.raises(ConfigError, match=f"{KEY}jwks.endpoint.url: ") as raised:
        validator(url)
    assert reason in str(raised.value)


@pytest.fixture
def trusted(monkeypatch, tmp_path) -> trustme.CA:
    """The authority that this machine trusts."""
    authority = trustme.CA()
    authorities = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(authorities)
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    return authority


async def fetched(authority: trustme.CA, body: bytes, status: bytes = b"200 OK") -> bytes:
    """What is fetched from a server with a certificate of ``authority``."""

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        except trio.BrokenResourceError:
            pass

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1", https_compatible=True)
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]
        got = await outcome.acapture(validator(f"https://localhost:{port}/keys").keys.fetch)
        nursery.cancel_scope.cancel()
    return got.unwrap()


async def test_a_server_has_to_be_trusted(trusted):
    text = key_set(key_named("a"))
    assert await fetched(trusted, text) == text
    with pytest.raises(KeysUnavailable, match="the certificate is not trusted"):
        await fetched(trustme.CA(), text)


@pytest.mark.parametrize(
    ("status", "body_bytes", "reason"),
    [
        (b"200 OK", MAX_KEYS_BYTES + MAX_ANSWER_BYTES, "too long"),
        (b"302 Found\r\nLocation: https://elsewhere.example/keys", 0, "redirects are not followed"),
        (b"404 Not Found", 10, "answered with status 404"),
    ],
)
async def test_an_answer_that_is_too_long_or_sends_on_is_none(trusted, status, body_bytes, reason):
    with pytest.raises(KeysUnavailable, match=reason):
        await fetched(trusted, b" " * body_bytes, status)
