"""Measurements: counts and ratios, printed. Never part of the tests; figures that matter go into docs/performance.md."""
