"""Pools and schedds in the admin: another pool, a schedd that is checked again; each page says what will happen."""

from __future__ import annotations

import pytest
from django.test import Client

from sites_app.models import Onboarding, Pool, Schedd, ScheddState
from tests.support.html import text
from tests.support.rows import pool_row, schedd_row

pytestmark = pytest.mark.django_db
POOLS, SCHEDDS = "/admin/sites_app/pool/verb", "/admin/sites_app/schedd/verb"


def do(client: Client, path: str, key: object, seen: str, **data: object) -> int:
    return client.post(f"{path}/", {"id": key, "seen": seen, "reason": "because", **data}).status_code


def test_a_pool_is_added_like_another_and_gets_a_schedd(operator: Client) -> None:
    pool_row("first")
    page = text(operator.get(f"{POOLS}/add-pool/", {"id": "first"}).content.decode())
    assert "each is checked before it is enabled" in page
    values = {"name": "second", "collector": "cm.example:9618", "file_system": "nfs"}
    assert do(operator, f"{POOLS}/add-pool", "first", "enabled", **values) == 302
    assert do(operator, f"{POOLS}/add-schedd", "second", "enabled", name="schedd@new", submit_root="/dags") == 302
    schedd = Schedd.objects.get()
    assert (schedd.pool, schedd.state, schedd.submit_root) == (Pool.objects.get(name="second"), ScheddState.DISCOVERED, "/dags")


def test_a_schedd_that_failed_its_checks_says_why_and_is_checked_again(operator: Client) -> None:
    schedd = schedd_row(state=ScheddState.DISABLED, onboarded_at=None, onboarding="canary DAG: its DAGMan ended with 1")
    assert "its DAGMan ended with 1" in text(operator.get(f"{SCHEDDS}/enable/", {"id": schedd.pk}).content.decode())
    assert do(operator, f"{SCHEDDS}/enable", schedd.pk, "disabled") == 409
    assert do(operator, f"{SCHEDDS}/check", schedd.pk, "disabled") == 302
    assert Onboarding.objects.get().schedd == schedd
