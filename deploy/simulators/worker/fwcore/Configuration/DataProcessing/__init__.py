"""How a release processes data."""
