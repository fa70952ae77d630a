"""What a schedd's answers and silences leave in its row, and in the history of its health."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sites_app.health import Signals
from sites_app.models import Health, HealthChange, Schedd
from sites_app.schedds import schedd_answered, schedd_silent
from tests.support.rows import schedd_row
from wms2.adapters.types import ScheddAd
from wms2.runtime import clock

pytestmark = pytest.mark.django_db
AD = ScheddAd("schedd@test", "25.14.1", 1, duty_cycle=0.2, dagmans=90, owner_dagmans=400)


def looks(schedd: Schedd, *answers: ScheddAd | None) -> Schedd:
    """One each minute; None: it does not answer."""
    now = clock.now()
    for number, ad in enumerate(answers):
        at = now + timedelta(minutes=number)
        if ad is None:
            schedd_silent(schedd=schedd, error="timed out", collector_says="the collector has its ad", now=at)
        else:
            schedd_answered(schedd=schedd, ad=ad, ours=Signals(ours=30), now=at)
    schedd.refresh_from_db()
    return schedd


def test_an_answer_says_how_many_dagmans_others_run_and_one_owner_may() -> None:
    schedd = looks(schedd_row(max_dagman_slots=500), AD)
    assert (schedd.dagmans_running, schedd.dagmans_others, schedd.owner_dagmans, schedd.duty_cycle) == (30, 60, 400, 0.2)
    assert (schedd.dagmans_most, schedd.health, schedd.health_reason) == (400, Health.HEALTHY, "")
    assert looks(schedd, ScheddAd("schedd@test", "25.14.1", 1)).dagmans_most == 500, "an ad that says nothing limits nothing"


def test_a_silent_schedd_is_suspected_then_unreachable_and_well_after_three_answers_each_change_kept_with_its_look() -> None:
    schedd = looks(schedd_row(), AD, None)
    assert schedd.health == Health.HEALTHY and schedd.health_reason.startswith("suspected unreachable, 1 of 3 looks")
    assert schedd.unusable.startswith("does not answer since"), "nothing new goes there from the first on"
    assert looks(schedd, None, None).health == Health.UNREACHABLE
    assert looks(schedd, AD, AD).health == Health.UNREACHABLE
    assert schedd.unusable.startswith("unreachable: ")
    assert looks(schedd, AD).unusable == ""
    changes = list(HealthChange.objects.order_by("id").values_list("old", "new", "reason", "signals__silent"))
    why = "timed out; the collector has its ad"
    assert changes == [
        ("healthy", "unreachable", f"it does not answer: {why}", why), ("unreachable", "healthy", "", ""),
    ]  # fmt: skip


def test_another_job_queue_is_a_row_of_evidence_and_of_its_health() -> None:
    schedd = looks(schedd_row(), AD, ScheddAd("schedd@test", "25.14.1", 1_760_000_000))
    assert schedd.queue_changes.count() == 1
    assert schedd.health == Health.DEGRADED
    reported = "its job queue is another one than before, of 2025-10-09 08:53:20 UTC"
    assert HealthChange.objects.get().reason == reported and schedd.health_reason == reported
