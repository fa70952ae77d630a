"""How Django's admin site is set up: words, and lists as wide as the window."""

from __future__ import annotations

from django.contrib import admin


def site_configure() -> None:
    """Lists have many columns: the side bar that repeats the index beside each of them is left out."""
    admin.site.index_title = "All tables"
    admin.site.enable_nav_sidebar = False
