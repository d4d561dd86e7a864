"""How much of the broker each user, client id and address may have."""
