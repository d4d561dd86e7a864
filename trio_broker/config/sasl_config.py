"""The settings of authentication by SASL. A listener may have its own: ``listener.name.<name>.…``.

Source: Kafka's BrokerSecurityConfigs and SaslConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import ConfigType, UpdateMode, key
from trio_broker.config.validators import at_least

PER_BROKER = UpdateMode.PER_BROKER


@attrs.frozen(kw_only=True)
class SaslConfig:
    """A connection reads them when it is made, and when its client logs in."""

    sasl_enabled_mechanisms: tuple[str, ...] = key(
        ("GSSAPI",),
        "The mechanisms of a listener with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        update_mode=PER_BROKER, acts_on_rates=False,
    )  # fmt: skip
    sasl_jaas_config: str | None = key(
        None,
        "A login module and its options: who may log in by PLAIN, and as whom this broker logs in at others.",
        type=ConfigType.PASSWORD, sensitive=True, update_mode=PER_BROKER, acts_on_rates=False,
    )  # fmt: skip
    sasl_mechanism_inter_broker_protocol: str = key(
        "GSSAPI",
        "The mechanism by which brokers log in at each other.",
        update_mode=PER_BROKER, acts_on_rates=False,
    )  # fmt: skip
    sasl_server_max_receive_size: int = key(
        512 * 1024,
        "The largest request of a client that has not logged in yet, 16 KiB at most, and 80 with OAUTHBEARER; a larger"
        " one closes its connection.",
        validator=at_least(1),
    )
    connections_max_reauth_ms: int = key(
        0,
        "How long a login holds; then its client logs in again, or is closed at its next request. 0 is for ever.",
        type=ConfigType.LONG,
    )
    connection_failed_authentication_delay_ms: int = key(
        100,
        "How long a client that has failed to log in waits for the answer.",
        validator=at_least(0),
    )
    delegation_token_secret_key: str | None = key(
        None,
        "What the passwords of delegation tokens follow from, the same on each broker; without it there are none.",
        type=ConfigType.PASSWORD, sensitive=True,
    )  # fmt: skip
    delegation_token_max_lifetime_ms: int = key(
        7 * 86_400_000,
        "How long a delegation token may be prolonged.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_time_ms: int = key(
        86_400_000,
        "How long a delegation token holds until it is prolonged.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    delegation_token_expiry_check_interval_ms: int = key(
        3_600_000,
        "How often delegation tokens that are over are removed.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        None,
        "Where the public keys of tokens are, with OAUTHBEARER: a URL with https or file.",
        type=ConfigType.STRING,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        3_600_000,
        "How often the keys are fetched by https. A file is looked at every few seconds.",
        type=ConfigType.LONG, validator=at_least(1_000),
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        100,
        "How long a fetch of keys that has failed waits for the next one; twice as long each time.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        10_000,
        "The longest such wait.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        (),
        "The names of this cluster: a token of OAUTHBEARER has to be for one of them.",
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        None,
        "Who issues the tokens of OAUTHBEARER, as they say.",
        type=ConfigType.STRING,
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        30,
        "By how much the clock of the issuer may differ from the broker's.",
        validator=at_least(0),
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        "sub",
        "The claim of a token that has the user's name.",
    )
