"""Builders and small helpers for tests; no behaviour of the product lives here."""
