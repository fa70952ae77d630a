"""Rucio's generic permissions: root and accounts with the attribute ``admin`` may do what WMS2 does."""

from rucio.core.permission.generic import has_permission

__all__ = ["has_permission"]
