"""What several commands read alike."""

from __future__ import annotations

import getpass
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError


def actor_named(given: str | None) -> str:
    """The name in the audit, which has room for 100 characters. Raises CommandError: there is none."""
    try:
        actor = (getpass.getuser() if given is None else given).strip()
    except (KeyError, OSError) as error:
        raise CommandError("this host has no name for you: give --actor") from error
    if not 0 < len(actor) <= 100:
        raise CommandError("--actor: give a name of at most 100 characters")
    return actor


def user_named(name: str) -> Any:
    """The user of this name. Raises CommandError: there is none."""
    user = get_user_model().objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"there is no user {name!r}")
    return user
