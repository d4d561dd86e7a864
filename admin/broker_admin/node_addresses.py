"""Where the API and the pages have what only one broker of the cluster knows: below the address of that broker."""

from __future__ import annotations

NODE_PAGES = "/brokers/{broker_id}"
NODE_API = f"/api/v1{NODE_PAGES}"


def at_broker(path: str, broker_id: int) -> str:
    """The address that ``path``, below ``NODE_PAGES`` or ``NODE_API``, has for one broker; another is as it was."""
    return path.replace("{broker_id}", str(broker_id))
