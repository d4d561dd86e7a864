"""Why TLS failed, in one line, in the words of who has to mend it.

Source: OpenSSL's names of errors (sslerr.h), its codes of refused certificates (x509_vfy.h).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, TypeGuard

_OF_CLIENTS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth is required here",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this broker's certificate (unknown CA)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this broker's certificate (its CA, its names or its dates)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this broker's certificate (its CA, its names or its dates)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this broker's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "it offers no version of TLS that is enabled here (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "it offers no cipher that is enabled here (ssl.cipher.suites)",
}
"""By OpenSSL's name of the error."""

_NO_CERTIFICATE: Final = "it asks for a certificate of its clients ({shown})"

_OF_SERVERS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    # The alert of TLS 1.2, which stands for having no cipher in common as well.
    "SSLV3_ALERT_HANDSHAKE_FAILURE": f"{_NO_CERTIFICATE}, or has no cipher in common with this side",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of {shown} (unknown CA)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of {shown}",
    # From programs in Go also where none is shown.
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of {shown}, or that there is none",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the certificate of {shown} has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has none of the versions of TLS that are enabled here (ssl.enabled.protocols)",
    "UNSUPPORTED_PROTOCOL": "it has none of the versions of TLS that are enabled here (ssl.enabled.protocols)",
    "WRONG_VERSION_NUMBER": "it answers without TLS",
    "RECORD_LAYER_FAILURE": "it answers without TLS",
}

_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of a certificate that no trusted one leads to."""

_OTHER_NAME: Final = frozenset({62, 64})
"""Those of a certificate for another host name or address."""

_ENDS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""How the end of a connection shows."""


def is_failure(error: OSError) -> TypeGuard[ssl.SSLError]:
    """Whether the two sides did not come to terms; otherwise the connection is gone, for whatever reason."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, _ENDS)


def failure_of_client(error: ssl.SSLError) -> str:
    """Return what a listener says of its client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return _text_of(error, _OF_CLIENTS)


def failure_of_server(
    error: ssl.SSLError, *, shown: str = "ssl.keystore.location", trusted: str = "the truststore"
) -> str:
    """Return what a client says of the server that it connects to.

    ``shown`` is the setting of this side's own certificate, ``trusted`` where those are that it trusts.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNTRUSTED:
            return f"nobody in {trusted} has signed its certificate: {error.verify_message}"
        if error.verify_code in _OTHER_NAME:
            return f"its certificate is for other names: {error.verify_message.rstrip('.')}"
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, _ENDS):
        return "the other side closed it"
    return _text_of(error, _OF_SERVERS).format(shown=shown)


def _text_of(error: ssl.SSLError, texts: Mapping[str, str]) -> str:
    reason = error.reason or error.strerror or str(error)
    return texts.get(reason, reason.replace("_", " ").lower())
