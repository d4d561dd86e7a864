"""A broker whose admin app is served from its start on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from broker_admin.views.node.start import StartView

if TYPE_CHECKING:
    # A start does not wait for all that is shown of a broker which runs.
    from broker_admin.view import BrokerView


@attrs.define
class StartingBroker:
    """What the admin app has of it: there is a ``view`` soon after it has begun to serve clients."""

    start: StartView
    view: BrokerView | None = None
