"""Files are planned in the order that the splitters compare names in, whatever order the database sorts text by."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dags_app.planning.plan import LeftOut, jobs_of
from dags_app.planning.specs import JobSpec, SplittingAlgo
from requests_app.models import InputFile, Workflow
from requests_app.work.input_places import Places
from requests_app.work.ledger import ledger_of
from requests_app.work.remaining import lumi_specs, work_left
from sites_app.models import Site, SiteRse
from tests.support.rows import input_spec, workflow_row

pytestmark = pytest.mark.django_db

SPEC = input_spec(algorithm=SplittingAlgo.FILE_BASED, files_per_job=2)
#: Every other collation than bytes puts "a" before "B" or skips the punctuation.
LFNS = ["/store/B.root", "/store/a-1.root", "/store/a.root", "/store/a_1.root", "/store/é.root"]


@pytest.fixture(name="workflow")
def _workflow() -> Workflow:
    SiteRse.objects.create(site=Site.objects.create(name="T2_CH_CERN"), rse="T2_CH_CERN", seen_at="2026-01-01T00:00:00Z")
    workflow = workflow_row(spec=SPEC)
    for lfn in reversed(LFNS):
        InputFile.objects.create(
            workflow=workflow, lfn=lfn, block_name="/a/b/c#1", size_bytes=1, events=10, rses=["T2_CH_CERN"],
            lumis={"1": [[1, 1]]},
        )  # fmt: skip
    return workflow


def jobs_left(workflow: Workflow, left_out: LeftOut) -> list[JobSpec]:
    work = work_left(workflow, SPEC, ledger_of(workflow))
    assert work is not None
    return list(jobs_of(SPEC, work, left_out))


def test_files_are_planned_in_byte_order(workflow: Workflow) -> None:
    left = LeftOut()
    assert [file.lfn for job in jobs_left(workflow, left) for file in job.files] == LFNS
    assert not left
    assert [file.lfn for file in lumi_specs(workflow, Places(workflow, SPEC), {1: ((1, 1),)})] == LFNS


def test_the_order_is_asked_for_by_name_since_a_database_may_have_another(workflow: Workflow) -> None:
    """The test stack's PostgreSQL knows no other collation to try it with."""
    with CaptureQueriesContext(connection) as queries:
        jobs_left(workflow, LeftOut())
        list(lumi_specs(workflow, Places(workflow, SPEC), {1: ((1, 1),)}))
    orders = [query["sql"].rpartition("ORDER BY")[2] for query in queries if "ORDER BY" in query["sql"]]
    by_name = [order for order in orders if '"input_files"."lfn"' in order]
    assert len(by_name) == 2  # files that were not tried, those with lumis
    assert all('"input_files"."lfn" COLLATE "C"' in order for order in by_name)
