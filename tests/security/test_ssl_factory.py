"""Keys and certificates are taken as a whole, or refused in one line that says what is wrong."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, load_pem_private_key, pkcs12

from tests.security.tls_files import write_key_store
from trio_broker.config.errors import ConfigError
from trio_broker.config.ssl_config import SslConfig
from trio_broker.security.kafka_principal import ANONYMOUS
from trio_broker.security.ssl_factory import SslFactory

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", common_name="broker")


@pytest.fixture
def config(tmp_path):
    return SslConfig(ssl_keystore_location=str(write_key_store(tmp_path / "key.pem", CERTIFICATE)))


def refused(config: SslConfig, **changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        SslFactory("SSL", attrs.evolve(config, **changes))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_is_wrong_is_said_in_one_line(config, tmp_path):
    assert "ssl.keystore.location is not set" in refused(SslConfig())
    assert "No such file" in refused(config, ssl_keystore_location=str(tmp_path / "none.pem"))
    assert "needs ssl.truststore.location" in refused(config, ssl_client_auth="required")
    assert "TLSv1.1" in refused(config, ssl_enabled_protocols=("TLSv1.1",))
    assert "no PKCS12" in refused(config, ssl_keystore_type="PKCS12")
    key = CERTIFICATE.private_key_pem.bytes().decode()
    chained = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": "nonsense"}
    assert "ssl.keystore.certificate.chain: no certificates" in refused(config, **chained)
    trusting = {"ssl_client_auth": "required", "ssl_truststore_certificates": "nonsense"}
    assert "ssl.truststore.certificates: no certificates" in refused(config, **trusting)
    assert "RULE" in refused(config, ssl_principal_mapping_rules="RULE:x")
    (tmp_path / "key.jks").touch(mode=0o600)
    (tmp_path / "key.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    assert "-deststoretype PKCS12" in refused(config, ssl_keystore_location=str(tmp_path / "key.jks"))
    (tmp_path / "key.pem").chmod(0o640)
    assert "chmod 600" in refused(config)


def test_a_key_that_is_not_the_certificates_is_refused():
    other = CA.issue_cert("other")
    config = SslConfig(
        ssl_keystore_key=other.private_key_pem.bytes().decode(),
        ssl_keystore_certificate_chain=CERTIFICATE.cert_chain_pems[0].bytes().decode(),
    )
    assert "is not that of the certificate" in refused(config)


def test_an_expired_certificate_is_refused(tmp_path):
    expired = CA.issue_cert("localhost", not_after=datetime(2001, 1, 1, tzinfo=UTC))
    path = write_key_store(tmp_path / "old.pem", expired)
    assert "to 2001-01-01 only" in refused(SslConfig(ssl_keystore_location=str(path)))


def test_pkcs12_has_key_and_chain(tmp_path):
    certificate = x509.load_pem_x509_certificate(CERTIFICATE.cert_chain_pems[0].bytes())
    key: Any = load_pem_private_key(CERTIFICATE.private_key_pem.bytes(), None)
    path = tmp_path / "key.p12"
    path.touch(mode=0o600)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(b"k", key, certificate, None, BestAvailableEncryption(b"pw"))
    )
    config = SslConfig(ssl_keystore_type="PKCS12", ssl_keystore_location=str(path), ssl_keystore_password="pw")
    assert SslFactory("SSL", config).principal(None) is ANONYMOUS
    assert "no PKCS12 that its password opens" in refused(config, ssl_keystore_password="other")


def test_nobody_makes_the_broker_shake_hands_again(config):
    assert SslFactory("SSL", config).context.options & ssl.OP_NO_RENEGOTIATION


def test_a_client_is_named_as_java_writes_its_name(config):
    factory = SslFactory("SSL", config)
    der = x509.load_pem_x509_certificate(CERTIFICATE.cert_chain_pems[0].bytes())
    name = factory.principal(der.public_bytes(Encoding.DER)).name
    assert name.startswith("CN=broker,OU=Testing cert")
    assert ",O=trustme v" in name


def test_a_new_file_is_taken_and_a_bad_one_leaves_the_old_context(config, tmp_path):
    factory = SslFactory("SSL", config)
    before = factory.context
    assert not factory.reconfigure(config)
    (tmp_path / "key.pem").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="no private key"):
        factory.reconfigure(config)
    assert factory.context is before
    (tmp_path / "key.pem").write_bytes(CA.issue_cert("localhost").private_key_and_cert_chain_pem.bytes())
    assert factory.reconfigure(config)
    assert factory.context is not before


def test_a_setting_that_is_refused_is_not_tried_again_until_something_changes(config, tmp_path):
    factory, later = SslFactory("SSL", config), tmp_path / "later.pem"
    unknown = attrs.evolve(config, ssl_keystore_location=str(later))
    with pytest.raises(ConfigError, match="No such file"):
        factory.reconfigure(unknown)
    assert not factory.reconfigure(unknown)
    write_key_store(later, CERTIFICATE)
    assert factory.reconfigure(unknown)
