"""What can be wrong with the stored metadata."""

from __future__ import annotations

from trio_broker.storage.errors import DataDirectoryError


class MetadataLogUnusable(DataDirectoryError):
    """The metadata log or its snapshot cannot be trusted or understood; the message is one line that says why."""
