"""The settings of alerts: where they are sent, in which form, and how often one that stays is repeated.

Source: docs/alerts.md, docs/decisions/0081-alerts-are-a-state-not-a-queue.md.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import attrs

from trio_broker.common.host_port import bracketed, host_port
from trio_broker.config.config_key import ConfigType, UpdateMode, Validator, key
from trio_broker.config.validators import at_least, one_of

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

HTTP_PORTS = {"http": 80, "https": 443}
"""The schemes that are taken, and the port of each where the URL has none."""

LEAST_REPEAT_MS = 60_000
"""A receiver that is sent more often is a receiver that is not read any more."""


@attrs.frozen(kw_only=True)
class HttpAddress:
    """Where a request goes: ``target`` is path and query. A secret may be part of it, so it is not for display."""

    scheme: str
    host: str
    port: int
    target: str = attrs.field(repr=False)

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def host_header(self) -> str:
        """The host as a URL has it: with brackets if it is an IPv6 address, and with a port that is not the usual."""
        usual = self.port == HTTP_PORTS[self.scheme]
        return bracketed(self.host) if usual else host_port(self.host, self.port)


def http_address(text: str) -> HttpAddress:
    """Return what ``text``, a URL, says.

    Raises:
        ValueError: it is no URL of a server that speaks HTTP, or has a user name, a fragment, or other characters than
            a URL may have. The error does not repeat it.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("it is not a URL") from None
    if not is_plain(text) or parts.scheme not in HTTP_PORTS or not parts.hostname or _has_too_much(parts):
        raise ValueError("it is not a URL with http or https and a host")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    usual = HTTP_PORTS[parts.scheme]
    return HttpAddress(scheme=parts.scheme, host=parts.hostname, port=usual if port is None else port, target=target)


def is_plain(text: str) -> bool:
    """Whether ``text`` may stand in a request line: no blank, no control character, nothing beyond ASCII."""
    return all("!" <= character <= "~" for character in text)


def _has_too_much(parts: SplitResult) -> bool:
    # Port 0 is none that can be connected to.
    return "@" in parts.netloc or bool(parts.fragment) or parts.port == 0


def _is_url_or_empty(text: str) -> bool:
    try:
        return text == "" or bool(http_address(text))
    except ValueError:
        return False


URL_OR_EMPTY = Validator("http://… or https://… without a user name, or empty for none", _is_url_or_empty)

HEADER_VALUE: Validator[str] = Validator(
    "printable ASCII on one line", lambda text: all(" " <= character <= "~" for character in text)
)


@attrs.frozen(kw_only=True)
class AlertConfig:
    """Where alerts are sent; without a URL nowhere."""

    admin_advertised_url: str = key(
        "",
        "Ours. Where others reach the admin page, for links in alerts; empty means the address of admin.listener.",
        validator=URL_OR_EMPTY,
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
    alerts_webhook_url: str = key(
        "",
        "Ours. Where alerts are sent as HTTP POST; empty means nowhere. Kept as a secret, which the path may be.",
        type=ConfigType.PASSWORD,
        sensitive=True,
        validator=URL_OR_EMPTY,
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
    alerts_webhook_format: str = key(
        "json",
        "Ours. The form of an alert: json, or slack for Slack's incoming webhooks and what takes the same.",
        validator=one_of("json", "slack"),
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
    alerts_webhook_authorization: str = key(
        "",
        "Ours. The Authorization header of each alert, as in: Bearer 2f1d; empty means none.",
        type=ConfigType.PASSWORD,
        sensitive=True,
        validator=HEADER_VALUE,
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
    alerts_repeat_interval_ms: int = key(
        4 * 3_600_000,
        "Ours. How often an alert that stays is sent again.",
        type=ConfigType.LONG,
        validator=at_least(LEAST_REPEAT_MS),
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
