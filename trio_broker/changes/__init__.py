"""What was changed in the broker, by which client, and its effect; kept on disk."""
