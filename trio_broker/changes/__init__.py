"""What was changed in the broker, by which client, and what came of it; kept on disk."""
