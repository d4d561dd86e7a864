"""Who may call the admin server from a browser, and what its answers allow a browser to do.

Requests are checked before anything else happens to them:

* ``Host`` must be a name we know: a loopback name, what the server was bound to, or one that was configured. A page
  that rebinds its own DNS name to 127.0.0.1 sends its own name here, and is refused. The address of the connection
  itself is accepted too: an address cannot be rebound.
* ``Origin``, when a browser sends one, must be ours.
* A change needs the header ``X-Requested-With`` and a JSON content type (``request_body.py``): no HTML form can send
  either, and no script of another origin may, since we never answer with CORS headers.

Answers forbid inline scripts and styles, framing, sniffing and referrers; those of the API are never cached.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_admin.problems import problem_response

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)

SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": with that, browsers send forms of our own with "Origin: null".
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class RequestGuard:
    """ASGI middleware: refuses requests that are not meant for us, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self.app = app
        self.allowed_hosts = LOOPBACK_NAMES | {name.lower().strip("[]") for name in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Lifespan events and WebSockets, which the app refuses by itself.
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                # Assets have set their own; answers of the API and pages show the state of now, and are not kept.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if reason := self.reason_to_refuse(scope):
            await problem_response(403, reason)(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)

    def reason_to_refuse(self, scope: Scope) -> str | None:
        """Why this request is not for us, or None if it is."""
        headers = Headers(scope=scope)
        # Exactly one: proxies and servers disagree on which of several counts.
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.is_our_host(hosts[0], scope):
            return "the Host header does not name this server; further names are set by admin.allowed.hosts"
        origins = headers.getlist("origin")
        if any(not is_same_origin(origin, hosts[0]) for origin in origins):
            return "requests from pages of other origins are not answered"
        return None

    def is_our_host(self, host_header: str, scope: Scope) -> bool:
        name = host_name(host_header)
        if name is None:
            return False
        if name in self.allowed_hosts:
            return True
        # The address of the connection itself: DNS can be rebound, an IP address in the Host header cannot.
        server = scope.get("server")
        return server is not None and same_address(name, server[0])


def host_name(host_header: str) -> str | None:
    """The name in a Host header, lower case and without port or brackets; None if the header is malformed."""
    try:
        parts = urlsplit(f"//{host_header}")
        if parts.netloc != host_header or parts.username is not None or parts.port == 0:
            return None
        return parts.hostname
    except ValueError:
        return None


def same_address(name: str, address: str) -> bool:
    """Whether ``name`` is an IP address, and this one."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(address)
    except ValueError:
        return False


def is_same_origin(origin: str, host_header: str) -> bool:
    """Whether ``origin`` is the page we serve under ``host_header``; ``null``, as sandboxed pages send it, is not."""
    return origin.lower() in (f"http://{host_header.lower()}", f"https://{host_header.lower()}")
