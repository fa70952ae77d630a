"""Counting no further than anybody pages: the admin's pager asks for a count of every list, and tables have millions of rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator

#: Rows that can be paged through; what lies behind is found by searching or filtering.
MOST = 2_000


class BoundedPaginator(Paginator):
    """Counts up to ``MOST``; ``more`` tells whether there are further rows."""

    object_list: Any

    @cached_property
    def count(self) -> int:
        """At most ``MOST``; PostgreSQL stops there."""
        return min(self._found, MOST)

    @cached_property
    def more(self) -> bool:
        """Whether rows are left behind the last page."""
        return self._found > MOST

    @cached_property
    def _found(self) -> int:
        return int(self.object_list.order_by()[: MOST + 1].count())
