"""The keys of TLS, of the broker or, with a prefix, of one listener; most of them are keys of clients as well.

Source: Kafka's SslConfigs and BrokerSecurityConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import ConfigType, UpdateMode, Validator, key
from trio_broker.config.validators import one_of

PER_BROKER = UpdateMode.PER_BROKER
PASSWORD = ConfigType.PASSWORD
STRING = ConfigType.STRING

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""What is served; TLS 1.1 and older are broken."""

IDENTIFICATION: Validator[str] = Validator("https, or empty", lambda value: value in ("https", ""))


@attrs.frozen(kw_only=True)
class SslConfig:
    """What one listener with TLS, or a client, shows, trusts and asks for."""

    ssl_keystore_type: str = key(
        "PEM",
        "The form of ssl.keystore.location: PEM or PKCS12 (JKS, which needs conversion, in Kafka).",
        validator=one_of("PEM", "PKCS12"), update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_keystore_location: str | None = key(
        None, "The file with the private key and the certificate chain; only its owner may read it.",
        type=STRING, update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_keystore_password: str | None = key(
        None, "The password of a PKCS12 file.", type=PASSWORD, sensitive=True, update_mode=PER_BROKER
    )
    ssl_key_password: str | None = key(
        None, "The password of an encrypted private key in PEM.", type=PASSWORD, sensitive=True, update_mode=PER_BROKER
    )
    ssl_keystore_key: str | None = key(
        None, "The private key itself, in PEM, in place of a file.", type=PASSWORD, sensitive=True,
        update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_keystore_certificate_chain: str | None = key(
        None, "The certificate chain itself, in PEM, beside ssl.keystore.key.", type=PASSWORD, sensitive=True,
        update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_type: str = key(
        "PEM",
        "The form of ssl.truststore.location: PEM or PKCS12.",
        validator=one_of("PEM", "PKCS12"), update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_location: str | None = key(
        None, "The file with the certificates by which the other side is trusted.", type=STRING, update_mode=PER_BROKER
    )
    ssl_truststore_password: str | None = key(
        None, "The password of a PKCS12 truststore.", type=PASSWORD, sensitive=True, update_mode=PER_BROKER
    )
    ssl_truststore_certificates: str | None = key(
        None, "The trusted certificates themselves, in PEM, in place of a file.", type=PASSWORD, sensitive=True,
        update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_client_auth: str = key(
        "none",
        "Whether clients must show a certificate (required), may (requested), or are not asked (none).",
        validator=one_of("required", "requested", "none"), update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = key(
        PROTOCOLS, "The versions of TLS that are served: TLSv1.2, TLSv1.3 or both.", update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = key(
        (), "The ciphers of TLS 1.2 by OpenSSL's names; none given are OpenSSL's own choice.", update_mode=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = key(
        "https",
        "Whether this broker, where it connects to others, checks their names: https, or empty for not at all.",
        parser=str.lower, validator=IDENTIFICATION, update_mode=PER_BROKER,
    )  # fmt: skip
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        "How a client's distinguished name becomes its user: RULE:pattern/replacement/[LU], DEFAULT.",
    )
