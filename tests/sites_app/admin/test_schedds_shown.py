"""Schedds in the admin: what is wrong with one comes first, and its numbers can be read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.support.html import text
from tests.support.rows import schedd_row

pytestmark = pytest.mark.django_db


def test_a_list_says_of_a_schedd_since_when_it_is_silent_and_why(staff: Client) -> None:
    since = timezone.now() - timedelta(minutes=3)
    schedd_row(unreachable_since=since, last_error="no answer", dagmans_running=3, max_dagman_slots=50)
    said = text(staff.get("/admin/sites_app/schedd/").content.decode(), "result_list")
    assert "3 min ago no answer 3 of 50" in said
    assert said.index("Silent since") < said.index("Last error") < said.index("Pool")


def test_a_schedds_page_tells_its_queues_birth_as_a_moment_and_rounds_its_duty_cycle(staff: Client) -> None:
    schedd = schedd_row(job_queue_birthdate=1_700_000_000, duty_cycle=0.0123456789012345)
    said = text(staff.get(f"/admin/sites_app/schedd/{schedd.pk}/change/").content.decode())
    assert "Job queue birthdate: 2023-11-14 22:13:20 UTC a change is evidence that the queue was lost" in said
    assert "Duty cycle: 0.0123 0 to 1" in said
