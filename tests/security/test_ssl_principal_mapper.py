"""From distinguished names to users, as Kafka's SslPrincipalMapperTest has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from trio_broker.security.kafka_principal import NoMatchingRule
from trio_broker.security.ssl_principal_mapper import SslPrincipalMapper, distinguished_name

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("distinguished_name", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_takes_a_name_decides(distinguished_name, name):
    assert SslPrincipalMapper.parse(RULES).name(distinguished_name) == name


def test_a_reference_to_no_group_is_itself_and_digits_beyond_are_text():
    assert SslPrincipalMapper.parse("RULE:^CN=(.*?),OU=(.*)$/$1-$25-$4/").name("CN=a,OU=b") == "a-b5-$4"


def test_an_escaped_slash_is_part_of_the_pattern():
    assert SslPrincipalMapper.parse(r"RULE:^CN=kafka\/(.*)$/$1/").name("CN=kafka/host") == "host"


def test_a_name_that_no_rule_takes_is_nobody():
    with pytest.raises(NoMatchingRule):
        SslPrincipalMapper.parse("RULE:^CN=admin$/root/").name("CN=other")


@pytest.mark.parametrize("text", ["DEFLT", "RULE:", "RULE:^CN=(.*)$/$1", "RULE:(/x/"])
def test_a_malformed_rule_is_refused(text):
    with pytest.raises(ValueError, match=r"RULE|DEF|\("):
        SslPrincipalMapper.parse(text)


def certificate_of(*attributes: x509.NameAttribute[str | bytes]) -> bytes:
    name, key, now = x509.Name(attributes), Ed25519PrivateKey.generate(), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    return builder.sign(key, None).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"), "1.2.840.113549.1.9.1=#1603614062"),
        (x509.NameAttribute(NameOID.SERIAL_NUMBER, "x" * 200), f"2.5.4.5=#1381c8{'78' * 200}"),
        (x509.NameAttribute(NameOID.SERIAL_NUMBER, "x" * 300), f"2.5.4.5=#1382012c{'78' * 300}"),
        (x509.NameAttribute(NameOID.TITLE, "xé", _ASN1Type.BMPString), "2.5.4.12=#1e04007800e9"),
        (x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0ab", _ASN1Type.BitString), "2.5.4.45=#0303006162"),
    ],
)
def test_an_attribute_without_a_keyword_is_written_as_it_stands_in_the_certificate(attribute, text):
    certificate = certificate_of(attribute, x509.NameAttribute(NameOID.COMMON_NAME, "c"))
    assert distinguished_name(certificate) == f"CN=c,{text}"
