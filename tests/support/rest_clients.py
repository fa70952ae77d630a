"""Clients of the REST interface: a reader, an operator, nobody."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from wms2.identities.grants import OPERATORS


def client_of(user: User) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {Token.objects.create(user=user).key}")
    return client


@pytest.fixture
def operator(db: Any) -> APIClient:
    """Signed in, member of the operators' group."""
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get_or_create(name=OPERATORS)[0])
    return client_of(user)


@pytest.fixture
def reader(db: Any) -> APIClient:
    """Signed in, nothing more."""
    return client_of(User.objects.create_user("rita"))


@pytest.fixture
def nobody() -> APIClient:
    """Not signed in."""
    return APIClient()
