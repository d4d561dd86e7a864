"""Why a client cannot connect, or connects and then hangs: findings from what is known of the listeners.

The classic: ``advertised.listeners`` names an address that is right for the broker's own machine only. The client
connects, asks for Metadata, is sent to ``localhost``, and tries its own machine from then on. Pure functions.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Mapping

import attrs

from broker_admin.views.node.connection_diagnosis import ListenerFacts, ProbeResult
from trio_broker.network.statistics import FailedHandshake

EVERY_INTERFACE = frozenset({"0.0.0.0", "::", ""})
"""Hosts that a listener accepts every address of the machine with."""


class Severity(enum.Enum):
    """How bad a finding is for the client in question."""

    BROKEN = "broken"
    """It cannot come back."""
    DOUBTFUL = "doubtful"
    """It may not come back; from the broker's machine that cannot be known."""
    FINE = "fine"


@attrs.frozen
class Finding:
    """One observation and what to do about it, an empty text where there is nothing to do."""

    severity: Severity
    detail: str
    advice: str = ""


@attrs.frozen
class ListenerDiagnosis:
    """What a client that comes through one listener receives, and whether it can come back there."""

    facts: ListenerFacts
    answer: str
    severity: Severity
    findings: tuple[Finding, ...]


@attrs.frozen
class HandshakeDiagnosis:
    """A failed handshake and what it most likely means."""

    handshake: FailedHandshake
    meaning: str


@attrs.frozen
class Diagnosis:
    """For a client at ``address``: each listener, and who failed to connect of late."""

    address: str
    listeners: tuple[ListenerDiagnosis, ...]
    failed_handshakes: tuple[HandshakeDiagnosis, ...]


def diagnose(address: str, facts: Iterable[ListenerFacts], handshakes: Iterable[FailedHandshake]) -> Diagnosis:
    """What a client at ``address``, an IP address, meets."""
    return Diagnosis(
        address,
        tuple(diagnose_listener(address, each) for each in facts),
        tuple(HandshakeDiagnosis(each, meaning_of(each)) for each in handshakes),
    )


def diagnose_listener(address: str, facts: ListenerFacts) -> ListenerDiagnosis:
    """One listener for a client at ``address``."""
    findings = (
        bound_finding(address, facts),
        loopback_finding(address, facts),
        remote_peers_finding(facts),
        probe_finding(facts),
    )
    found = tuple(finding for finding in findings if finding is not None)
    order = list(Severity)
    worst = min((finding.severity for finding in found), key=order.index, default=Severity.FINE)
    host = facts.advertised_host or "the address that it dialled"
    return ListenerDiagnosis(facts, f"{host}, port {facts.advertised_port}", worst, found)


def bound_finding(address: str, facts: ListenerFacts) -> Finding | None:
    if not is_loopback(facts.bound_host) or is_loopback(address):
        return None
    return Finding(
        Severity.BROKEN,
        f"the listener accepts connections from this machine only: it is bound to {facts.bound_host}",
        f"listeners={facts.listener_name}://0.0.0.0:{facts.bound_port}",
    )


def loopback_finding(address: str, facts: ListenerFacts) -> Finding | None:
    if not advertises_loopback(facts) or is_loopback(address):
        return None
    return Finding(
        Severity.BROKEN,
        f"a client at {address} is sent to {facts.advertised_host}, which is the client's own machine there",
        advertised_advice(facts),
    )


def remote_peers_finding(facts: ListenerFacts) -> Finding | None:
    if not facts.remote_peer_count or not advertises_loopback(facts):
        return None
    further = facts.remote_peer_count - len(facts.remote_peers)
    peers = ", ".join(facts.remote_peers) + (f" and {further} more" if further else "")
    return Finding(
        Severity.BROKEN,
        f"connected now from other machines ({peers}), each sent to {facts.advertised_host}, itself",
        advertised_advice(facts),
    )


def probe_finding(facts: ListenerFacts) -> Finding:
    place = f"{facts.advertised_host or facts.bound_host}:{facts.advertised_port}"
    match facts.probe:
        case ProbeResult.THIS_BROKER:
            return Finding(Severity.FINE, f"this broker answers at {place}, asked from its own machine")
        case ProbeResult.UNRESOLVED:
            return Finding(
                Severity.BROKEN,
                f"the broker's machine finds no address of {facts.advertised_host}; clients may ask another server",
                "advertise a name that clients can resolve, or an address",
            )
        case ProbeResult.REFUSED:
            return Finding(
                Severity.BROKEN,
                f"nothing listens at {place}",
                f"the listener is at port {facts.bound_port}: advertise that, or forward the port",
            )
        case ProbeResult.ANOTHER_BROKER:
            return Finding(
                Severity.BROKEN, f"another broker than this one answers at {place}", advertised_advice(facts)
            )
        case ProbeResult.NOT_KAFKA:
            return Finding(
                Severity.BROKEN, f"what answers at {place} does not speak Kafka's protocol", advertised_advice(facts)
            )
        case ProbeResult.UNREACHABLE:
            return Finding(
                Severity.DOUBTFUL,
                f"nothing answers the broker's own machine at {place}; behind a NAT that may be as it should",
                f"try from the client's machine: nc -vz {facts.advertised_host or facts.bound_host} "
                f"{facts.advertised_port}",
            )


def advertises_loopback(facts: ListenerFacts) -> bool:
    """Whether the advertised name means this machine, on every machine."""
    if not facts.advertised_host:
        return False
    return facts.advertised_host == "localhost" or (
        bool(facts.resolved_addresses) and all(is_loopback(each) for each in facts.resolved_addresses)
    )


def advertised_advice(facts: ListenerFacts) -> str:
    """The setting that would help."""
    if facts.bound_host in EVERY_INTERFACE:
        return (
            "remove this listener from advertised.listeners: each client then receives the address that it dialled; or "
            f"name one that clients reach: {facts.listener_name}://HOST:{facts.bound_port}"
        )
    return f"advertised.listeners={facts.listener_name}://HOST:{facts.bound_port}, with a HOST that clients reach"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


MEANINGS: Mapping[str, str] = {
    "TLS": "the client speaks TLS and this listener does not: set security.protocol=PLAINTEXT in the client",
    "no TLS": "the client speaks without TLS and this listener asks for it: set security.protocol=SSL in the client",
    "HTTP": "a browser, a health check or a proxy: the admin page has a port of its own",
    "unsupported version": "the client uses a version that ApiVersions does not list: another release of it is needed, "
    "or its own setting of the version is wrong",
    "truncated frame": "the client went away in the middle of its first request: a port scan, or a failing network",
    "slow frame": "the client began a request and never ended it",
    "refused": "not Kafka's protocol: another program, or SASL on a listener without it",
}
"""By the cause of a failed handshake."""


def meaning_of(handshake: FailedHandshake) -> str:
    """What a failed handshake most likely means; its own reason where nothing more is known."""
    return MEANINGS.get(handshake.cause, handshake.reason)
