"""Browsers of four kinds of people: an operator, staff without the group, a reader, nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.support import scene
from wms2.identities.grants import OPERATORS


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db: Any) -> Client:
    """Staff and member of the operators' group."""
    user = User.objects.create_user("olga", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    return client_of(user)


@pytest.fixture
def staff(db: Any) -> Client:
    """Staff, not an operator."""
    return client_of(User.objects.create_user("stan", is_staff=True))


@pytest.fixture
def reader(db: Any) -> Client:
    """Signed in, nothing more."""
    return client_of(User.objects.create_user("rita"))


@pytest.fixture
def nobody() -> Client:
    """Not signed in."""
    return Client()


@pytest.fixture
def built(db: Any, tmp_path: Path) -> scene.Scene:
    """A busy afternoon."""
    return scene.build(tmp_path)
