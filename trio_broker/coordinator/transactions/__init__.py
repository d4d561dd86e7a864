"""Transactional ids, their producers and transactions, the end of those, also of what hangs, and reports about all."""
