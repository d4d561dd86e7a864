"""Errors of the stored metadata."""

from __future__ import annotations

from trio_broker.storage.errors import DataDirectoryError


class MetadataLogUnusable(DataDirectoryError):
    """The metadata log or its snapshot is damaged or has unknown records; the message is one line that says why."""
