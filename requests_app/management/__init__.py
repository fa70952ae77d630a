"""Command line of requests."""
