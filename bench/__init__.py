"""How fast the broker is, and how fast it could be: floors and measurements. See README.md."""
