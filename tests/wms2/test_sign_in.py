"""Signing in: what nobody sees, where one is sent, and signing out."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def test_nobody_sees_requests(nobody: Client, built: Scene) -> None:
    for path in ("/", f"/requests/{built.active.request_name}/", "/requests/nothing/"):
        response = nobody.get(path)
        assert (response.status_code, response["Location"]) == (302, f"/login/?next={path}")


def test_the_live_part_is_not_given_to_nobody_either(nobody: Client) -> None:
    assert nobody.get("/", headers={"X-Wms2-Part": "live"}).status_code == 302


def test_one_comes_back_to_where_one_wanted_to_go() -> None:
    User.objects.create_user("rita", password="opensesame")
    response = Client().post(
        "/login/?next=/%3Fstatus=held", {"username": "rita", "password": "opensesame", "next": "/?status=held"}
    )
    assert (response.status_code, response["Location"]) == (302, "/?status=held")


def test_one_is_not_sent_to_foreign_places() -> None:
    User.objects.create_user("rita", password="opensesame")
    response = Client().post("/login/", {"username": "rita", "password": "opensesame", "next": "https://elsewhere.example/"})
    assert response["Location"] == "/"


def test_who_is_signed_in_is_led_on_and_never_back_to_the_sign_in(reader: Client) -> None:
    for wanted in ("/login/", "/login/?next=/login/"):
        assert reader.get("/login/", {"next": wanted})["Location"] == "/", wanted
    assert reader.get("/login/", {"next": "/cases/"})["Location"] == "/cases/"


def test_a_wrong_password_is_told_and_the_name_kept() -> None:
    User.objects.create_user("rita", password="opensesame")
    html = Client().post("/login/", {"username": "rita", "password": "guessed"}).content.decode()
    assert "correct" in html
    assert 'value="rita"' in html
    assert "guessed" not in html


def test_signing_out_needs_more_than_a_link(reader: Client) -> None:
    assert reader.get("/logout/").status_code == 405
    assert reader.get("/").status_code == 200
    assert reader.post("/logout/")["Location"] == "/login/"
    assert reader.get("/").status_code == 302


def test_readers_are_not_shown_the_admin(reader: Client, staff: Client) -> None:
    assert "/admin/" not in reader.get("/").content.decode()
    assert "/admin/" in staff.get("/").content.decode()
    assert reader.get("/admin/").status_code == 302
