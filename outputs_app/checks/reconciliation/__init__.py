"""Comparing what WMS2 believes with what DBS and Rucio hold, and what an operator does about a difference (ADR 0019)."""
