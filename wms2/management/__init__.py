"""Command line that belongs to no app."""
