"""Where the keys of OAUTHBEARER come from: a file of this machine, or a server with HTTPS.

The URL is read at a start only, and from the broker's own settings: no client names a file or a server that the broker
would look at (CVE-2025-27817).

Source: Kafka's ``sasl.oauthbearer.jwks.endpoint.url`` and VerificationKeyResolverFactory.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from trio_broker.config.alert_config import HttpAddress, http_address
from trio_broker.config.errors import ConfigError
from trio_broker.config.sasl_config import SaslConfig
from trio_broker.network.http_client import HttpError, get
from trio_broker.runtime.runtime import Runtime
from trio_broker.security.sasl.broker_jwt_validator import BrokerJwtValidator
from trio_broker.security.sasl.verification_keys import MAX_KEYS_BYTES, KeysUnavailable, VerificationKeys

URL_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"

FILE_SECONDS: Final = 3.0
"""Between two looks into a file with keys."""


def new_jwt_validator(config: SaslConfig, runtime: Runtime) -> BrokerJwtValidator:
    """Return what validates the tokens of OAUTHBEARER; its keys are fetched by their ``run``.

    Raises:
        ConfigError: a token would not be checked for its audience, issuer or signature, or the file has no keys.
    """
    for name, value in (
        (URL_KEY, config.sasl_oauthbearer_jwks_endpoint_url),
        ("sasl.oauthbearer.expected.audience", config.sasl_oauthbearer_expected_audience),
        ("sasl.oauthbearer.expected.issuer", config.sasl_oauthbearer_expected_issuer),
    ):
        if not value:
            raise ConfigError(f"{name} is not set: with OAUTHBEARER each token is checked for it", key=name)
    return BrokerJwtValidator(
        keys=_verification_keys(config, runtime),
        clock=runtime.clock,
        audience=config.sasl_oauthbearer_expected_audience,
        issuer=config.sasl_oauthbearer_expected_issuer or "",
        sub_claim_name=config.sasl_oauthbearer_sub_claim_name,
        clock_skew_seconds=config.sasl_oauthbearer_clock_skew_seconds,
    )


def _verification_keys(config: SaslConfig, runtime: Runtime) -> VerificationKeys:
    url = config.sasl_oauthbearer_jwks_endpoint_url or ""
    retry_backoff_seconds = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000
    new_keys = partial(
        VerificationKeys,
        URL_KEY,
        retry_backoff_seconds=retry_backoff_seconds,
        retry_backoff_max_seconds=max(
            retry_backoff_seconds, config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000
        ),
    )
    if (path := _path_of(url)) is not None:

        def read() -> bytes:
            try:
                return path.read_bytes()
            except OSError as error:
                raise KeysUnavailable(f"{path}: {error.strerror}") from None

        keys = new_keys(fetch=partial(runtime.workers.run, read), refresh_seconds=FILE_SECONDS)
        try:
            keys.take(read())
        except KeysUnavailable as error:
            raise ConfigError(f"{URL_KEY}: {error}", key=URL_KEY) from None
        return keys
    fetch = partial(_fetch, _address_of(url), runtime)
    return new_keys(fetch=fetch, refresh_seconds=config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)


async def _fetch(address: HttpAddress, runtime: Runtime) -> bytes:
    connect, workers = runtime.network.connect, runtime.workers
    try:
        return await get(address, connect=connect, workers=workers, max_bytes=MAX_KEYS_BYTES)
    except HttpError as error:
        raise KeysUnavailable(f"{error}") from None


def _path_of(url: str) -> Path | None:
    """The file that ``url`` names, None if it names none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        return None
    return Path(unquote(parts.path))


def _address_of(url: str) -> HttpAddress:
    try:
        address = http_address(url)
        if not address.is_tls:
            raise ValueError("keys are fetched by https")
    except ValueError as error:
        raise ConfigError(f"{URL_KEY}: {error}; name https://… or file:///…", key=URL_KEY) from None
    return address
