"""Consumer groups (KIP-848): members, assignments, and their records, also of members of the classic protocol."""
