"""How long a work unit that has ended on the pool waits for its account, as Prometheus is told it."""

from __future__ import annotations

import json
import time

import pytest
from prometheus_client import REGISTRY

from dags_app.models import WorkUnit, WorkUnitState
from dags_app.payload.contract import layout
from dags_app.services.activity import DagActivity
from tests.support.scripted import documents
from tests.support.scripted.dagman import write_unit_metrics
from tests.support.scripted.world import World

pytestmark = pytest.mark.django_db(transaction=True)


def reported(what: str) -> float:
    return REGISTRY.get_sample_value(f"wms2_tracking_seconds_{what}") or 0.0


def test_the_wait_for_a_slot_of_a_unit_s_cleanup_is_not_taken_for_a_late_account(world: World) -> None:
    request = world.request(documents.generation(300))
    world.cycle()
    job = world.job_of(request)
    unit = next(iter(job.nodes))
    world.schedd.unit_done(job, unit)
    merged_at, ended_at = time.time() - 50_000, time.time() - 1_000  # the manifest is the merge job's, cleanup comes after it
    manifest = job.directory / unit / layout.MANIFEST_FILE
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(merged_at))
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "written_at": moment}))
    write_unit_metrics(job.directory, unit, ended_at=ended_at)
    count, total, well = (
        reported("count"),
        reported("sum"),
        REGISTRY.get_sample_value("wms2_jobs_ended_total", {"outcome": "well"}) or 0,
    )
    world.cycle()
    jobs = WorkUnit.objects.get(name=unit).jobs + 1
    assert REGISTRY.get_sample_value("wms2_jobs_ended_total", {"outcome": "well"}) == well + jobs, "and its merge"
    assert reported("count") == count + 1
    assert 1_000 <= reported("sum") - total < 50_000


def test_a_unit_is_accounted_when_dagman_has_logged_it_before_the_schedd_is_asked_again(world: World) -> None:
    request = world.request(documents.generation(300))
    world.cycle()
    world.cycle()
    job = world.job_of(request)
    moves = DagActivity()
    moves.check()
    unit = next(iter(job.nodes))
    world.schedd.unit_done(job, unit)
    (job.directory / layout.OUTER_STATUS).unlink(missing_ok=True)
    assert moves.check() == []
    log = f"1 INTERNAL *** DAGMAN_STARTED {job.cluster}.0 ***\n2 {unit} JOB_SUCCESS 0 - - 1\n"
    (job.directory / layout.JOBSTATE_LOG).write_text(log)
    assert moves.check() == [(request.pk, "unit ended")]
    world.evaluate(request)
    assert WorkUnit.objects.get(name=unit).state == WorkUnitState.DONE
