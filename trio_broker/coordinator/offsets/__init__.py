"""Committed offsets: their requests, what is pending in transactions, their expiry, and what is recorded of changes."""
