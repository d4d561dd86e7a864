"""``/connection-diagnosis`` of a broker: why a client cannot connect, or connects and then hangs."""

from __future__ import annotations

import ipaddress

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.connection_diagnosis import Diagnosis, diagnose
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, query_pointer
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response
from broker_admin.routing import NodeRoute
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

MAX_ADDRESS_LENGTH = 64
"""An IPv6 address with its scope has less."""


@attrs.frozen
class DiagnosisQuery:
    """The IP address of the client in question; that of the caller where it is left out."""

    address: str = bounded("", maxLength=MAX_ADDRESS_LENGTH)


def client_address(request: Request) -> str:
    """The address that a request asks about.

    Raises:
        Problem: it is no IP address. A name is refused because resolving what a caller names would ask other machines.
    """
    asked = query_of(request, DiagnosisQuery).address.strip()
    if not asked:
        return "127.0.0.1" if request.client is None else request.client.host
    try:
        return str(ipaddress.ip_address(asked))
    except ValueError:
        reason = "address is an IP address, such as 192.0.2.7 or 2001:db8::7"
        raise Problem(400, reason, [FieldError(query_pointer("address"), reason)]) from None


async def diagnosis_for(request: Request) -> Diagnosis:
    """The diagnosis that a request asks for."""
    address, view = client_address(request), node_of(request).connection_diagnosis
    return diagnose(address, await view.listener_facts(), view.failed_handshakes())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Diagnosis, query=DiagnosisQuery)
async def get_connection_diagnosis(request: Request) -> Response:
    """What each listener answers a client at an address, whether it can come back there, and who failed to connect.

    It resolves the advertised names and connects to the advertised addresses, which takes four seconds at most.
    """
    return json_response(await diagnosis_for(request))


ROUTES = [NodeRoute(NODE_API + "/connection-diagnosis", get_connection_diagnosis)]
