"""What came to a Kafka port and is not Kafka's protocol: a TLS handshake, or an HTTP request and the answer to it.

The answer is one refusal that names the admin address.

The first four bytes of an HTTP request, read as the size of a frame, are more than a gigabyte, so that the frame is
refused in any case. A browser or ``curl`` at the wrong port then shows the reason instead of an empty reply.

Source: RFC 9112 for the form of the answer, RFC 8446 5.1 for the first bytes of TLS.
"""

from __future__ import annotations

from typing import Final

HEAD: Final = b"HEAD"

METHODS: Final = frozenset({b"GET ", HEAD, b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI", b"CONN", b"TRAC", b"PRI "})
"""The first four bytes of the methods of RFC 9110, of PATCH, and of HTTP/2 without an upgrade."""

TLS_HANDSHAKE_RECORD: Final = 0x1603
"""The first two bytes of every TLS connection: a handshake record, and the high byte of the record's version."""


def is_tls_handshake(frame_bytes: int) -> bool:
    """Whether a frame of this size is the beginning of a TLS handshake: a size of more than 350 MiB."""
    return frame_bytes >> 16 == TLS_HANDSHAKE_RECORD


def http_refusal(frame_bytes: int, admin_url: str | None) -> bytes | None:
    """Return the response to an HTTP request whose first bytes are the size ``frame_bytes``, or None.

    ``admin_url`` is the address of the admin page, None where there is none.
    """
    if frame_bytes < 0 or (method := frame_bytes.to_bytes(4, "big")) not in METHODS:
        return None
    place = f"the admin page is at {admin_url}" if admin_url else "this broker has no admin page"
    body = f"This port speaks Kafka's protocol, not HTTP; {place}\n".encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n"
        "\r\n"
    ).encode()
    return head if method == HEAD else head + body
