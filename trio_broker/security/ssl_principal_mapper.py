"""From the distinguished name in a client's certificate to the name of its user.

Source: Kafka's SslPrincipalMapper; RFC 2253 as Java's X500Principal writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import attrs
from cryptography.x509 import Name, NameAttribute, load_der_x509_certificate

from trio_broker.security.kafka_principal import NoMatchingRule

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 names; others are written as numbers."""

ESCAPED: Final = frozenset(',=+<>#;"\\')


BLANK: Final = "\\ "
"""One at the beginning or the end of a value."""


@attrs.frozen
class _Rule:
    """``change`` is what comes after the replacement: to lower case, to upper case, nothing. Without a pattern it takes
    every name as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    change: Callable[[str], str] = str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        return None if found is None else self.change(_expanded(found, self.replacement))


@attrs.frozen
class SslPrincipalMapper:
    """The rules, of which the first that takes a name decides."""

    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, text: str) -> SslPrincipalMapper:
        """Return the rules of ``ssl.principal.mapping.rules``.

        Raises:
            ValueError: one is malformed.
        """
        rules = []
        for found in _SPLITTER.finditer(text.strip()):
            whole, default, pattern, replacement, case, other = found.groups()[:6]
            if default is not None:
                rules.append(_Rule(None))
            elif pattern is not None:
                if not re.fullmatch(_RULE, whole) or not whole.endswith(f"/{case}"):
                    raise ValueError(f"{whole!r} is not RULE:pattern/replacement/[LU]")
                change = {"L": str.lower, "U": str.upper}.get(case, str)
                try:
                    rules.append(_Rule(re.compile(pattern), replacement, change))
                except re.error as error:
                    raise ValueError(f"{whole!r}: {error}") from None
            elif other:
                raise ValueError(f"{other!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        return cls(tuple(rules))

    def name(self, distinguished_name: str) -> str:
        """Return the user's name.

        Raises:
            NoMatchingRule: there is none.
        """
        for rule in self.rules:
            if (name := rule.apply(distinguished_name)) is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules takes {distinguished_name}")


def _expanded(found: re.Match[str], replacement: str) -> str:
    """Return ``replacement`` with Java's references: ``$12`` is group 12, or group 1 and a 2 where there are fewer; one
    that is no group is itself."""

    def one(reference: re.Match[str]) -> str:
        if reference[2] is not None:
            return reference[2]
        digits = reference[1]
        for end in range(len(digits), 0, -1):
            if int(digits[:end]) <= found.re.groups:
                return (found[int(digits[:end])] or "") + digits[end:]
        return reference[0]

    return re.sub(r"\$(\d+)|\\(.)", one, replacement)


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER as Java's X500Principal.getName does: the last part first."""
    return ",".join("+".join(_attribute(each) for each in part) for part in reversed(load_subject(certificate).rdns))


def load_subject(certificate: bytes) -> Name:
    return load_der_x509_certificate(certificate).subject


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    oid, text = attribute.oid.dotted_string, attribute.value
    if (keyword := KEYWORDS.get(oid)) is None:
        return f"{oid}=#{_value_in_der(attribute).hex()}"
    assert isinstance(text, str), "only an attribute without a keyword may be a string of bits"
    escaped = "".join(f"\\{each}" if each in ESCAPED else "\\00" if each == "\0" else each for each in text)
    stripped = escaped.strip(" ")
    before = len(escaped) - len(escaped.lstrip(" "))
    after = len(escaped) - before - len(stripped)
    return f"{keyword}={BLANK * before}{stripped}{BLANK * after}"


def _value_in_der(attribute: NameAttribute[str | bytes]) -> bytes:
    """Return the value of ``attribute`` as it stands in a certificate."""
    encoded = Name([attribute]).public_bytes()
    # A sequence of a set of a sequence, and in that a number and the value.
    for _ in range(3):
        size = encoded[1]
        encoded = encoded[2 if size < 0x80 else 2 + (size & 0x7F) :]
    return encoded[2 + encoded[1] :]
