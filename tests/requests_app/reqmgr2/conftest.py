"""The world of these tests."""

from tests.support.reqmgr2_world import outside, world

__all__ = ["outside", "world"]
