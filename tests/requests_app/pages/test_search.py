"""The search box: whatever a person has at hand leads to its page, or to a list, or says among what it was looked for."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from dags_app.models import DAG, FailureGroup, SiteJob
from outputs_app.models import ProcessingBlock
from requests_app.models import InputFile, Request, RequestGroup
from requests_app.selectors.search import MOST, search
from sites_app.models import Schedd, Site, SiteRse
from tests.support.html import links, text
from tests.support.rows import dag_row, new_block, request_row, schedd_row, workflow_row
from tests.support.statements import statements

pytestmark = pytest.mark.django_db
READ = "/MinimumBias/Run2026A-v1/RAW"
LFN = "/store/data/Run2026A/MinimumBias/RAW/v1/000/1.root"
#: Forms of what is looked for: a name, a dataset, a block, an LFN, a cluster, a job, a short and a whole id.
FORMS = ("tester_", READ, f"{READ}#1", LFN, "4711", "5300.0", "01234567", "0123abcd", "00000000-0000-4000-8000-000000000000")
LARGE_TABLES = (
    "requests", "workflows", "dags", "output_datasets", "processing_blocks", "output_files", "input_files", "site_jobs",
    "failure_samples",
)  # fmt: skip


class World(NamedTuple):
    request: Request
    dag: DAG
    block: ProcessingBlock
    schedd: Schedd
    job: SiteJob


@pytest.fixture
def world(db: Any) -> World:
    request = request_row(request_name="pdm_EGM_v1", prep_id="EGM-Run3-00001", campaign="Run3Summer26", input_dataset=READ)
    request_row(request_name="pdm_EGM_v10", prep_id="EGM-Run3-00010", campaign="Run3Winter26")
    workflow = workflow_row(request, input_dataset=READ)
    schedd = schedd_row("submit7.example.org")
    dag = dag_row(workflow, dagman_cluster_id="4711", schedd=schedd, schedd_name=schedd.name)
    now = timezone.now()
    group = FailureGroup.objects.create(workflow=workflow, category="data", code=8021, first_at=now, last_at=now)
    group.samples.create(dag=dag, unit="mg_000000", node="proc_000003", attempt=0, job_id="5300.0", final=True, at=now)
    InputFile.objects.create(workflow=workflow, lfn=LFN, block_name=f"{READ}#1", size_bytes=1, events=1)
    SiteRse.objects.create(site=Site.objects.create(name="T1_US_FNAL"), rse="T1_US_FNAL_Disk", seen_at=now)
    job = SiteJob.objects.create(site="T1_US_FNAL", purpose="remove", schedd=schedd, cluster="815")
    RequestGroup.objects.create(name="sample_of_july", created_by="olga")
    return World(request, dag, new_block(), schedd, job)


def opened(client: Client, asked: str) -> str:
    """The address that it leads to."""
    response = client.get("/search/", {"q": asked})
    assert response.status_code == 302, (asked, text(response.content.decode(), "main"))
    return str(response["Location"])


def said(client: Client, asked: str) -> str:
    response = client.get("/search/", {"q": asked})
    assert response.status_code == 200, (asked, response.headers)
    return text(response.content.decode(), "main")


def test_each_kind_of_name_opens_its_page(operator: Client, world: World) -> None:
    lfn = world.block.files.first().lfn  # type: ignore[union-attr]
    of_request = f"/requests/{world.request.request_name}/"
    of_block = f"/requests/{world.block.workflow.request_id}/"
    wanted = {
        world.request.request_name: of_request, " EGM-Run3-00001 ": of_request, "EGM-Run3-0001": "/requests/pdm_EGM_v10/",
        READ: of_request, f"{READ}#0123": of_request, LFN: of_request, "sample_of": "/groups/sample_of_july/",
        str(world.request.pk): of_request, str(world.request.workflow.pk): of_request,
    }  # fmt: skip
    assert {asked: opened(operator, asked) for asked in wanted} == wanted
    several = {
        "Run3Summer26": ("Run3Summer26",), "4711": ("4711", str(world.dag.pk), of_request),
        "4711.0": (str(world.dag.pk), of_request), "5300.0": (str(world.dag.pk), of_request),
        "5300": (str(world.dag.pk), of_request), str(world.dag.pk): (str(world.dag.pk), of_request),
        str(world.dag.pk)[:8]: (str(world.dag.pk), of_request), "t1_us_fnal": ("T1_US_FNAL",), "T1_US_FNAL_Disk": ("T1_US_FNAL",),
        "submit7": ("submit7.example.org", f"/{world.schedd.pk}/"), "815.0": (str(world.job.pk),),
        str(world.block.pk): (str(world.block.pk), of_block), lfn: (str(world.block.pk), of_block),
        world.block.dbs_block_name: (str(world.block.pk), of_block),
    }  # fmt: skip
    found = {asked: opened(operator, asked) for asked in several}
    assert [(asked, url) for asked, url in found.items() if not any(part in url for part in several[asked])] == []
    written = [group.hits for group in search(world.block.dataset_name[:-2]).groups if group.kind == "Output datasets"]
    assert {hit.name for hit in written[0]} == {world.block.dataset_name}


def test_the_beginning_of_an_id_may_be_digits_alone(operator: Client, world: World) -> None:
    dag = dag_row(workflow_row(request_row()), pk=uuid.UUID("34024953-0000-4000-8000-000000000000"))
    assert str(dag.pk) in opened(operator, "34024953")


def test_several_are_listed_by_kind_a_few_of_each(reader: Client, world: World) -> None:
    for number in range(MOST):
        request_row(request_name=f"pdm_EGM_v2{number}", campaign="pdm_new")
    shown = reader.get("/search/", {"q": "pdm"}).content.decode()
    assert "Found: pdm" in text(shown, "main")
    assert "Requests" in text(shown, "main")
    assert "There are more" in text(shown, "main")
    assert sum(url.startswith("/requests/pdm") for url in links(shown)) == MOST
    assert "Campaigns pdm_new" in " ".join(text(shown, "main").split())


def test_a_whole_name_wins_over_those_that_begin_with_it(reader: Client, world: World) -> None:
    assert opened(reader, "pdm_EGM_v1") == "/requests/pdm_EGM_v1/"
    assert "pdm_EGM_v10" in said(reader, "pdm_EGM_v")


def test_nothing_found_says_what_was_looked_for_and_where(reader: Client, world: World) -> None:
    shown = said(reader, "no_such_thing")
    for words in ("no_such_thing", "a request whose name begins with it", "a prep id", "a campaign", "a site", "a schedd"):
        assert words in shown
    assert "an output dataset that begins with it" in said(reader, "/No/Such/DATASET")
    assert "an input file with that LFN" in said(reader, "/store/no.root")
    assert "a DAGMan job with that cluster id" in said(reader, "999999")
    assert "The key / goes to the box" in " ".join(said(reader, "").split())


def test_what_no_name_can_be_is_refused(reader: Client) -> None:
    for wrong in ("a\0b", "x" * 701):
        response = reader.get("/search/", {"q": wrong})
        assert response.status_code == 400
        assert "at most 700 characters" in text(response.content.decode(), "main")


def test_it_is_for_those_who_are_signed_in(nobody: Client) -> None:
    assert nobody.get("/search/?q=x")["Location"].startswith("/login/")


def test_programs_search_too(reader: Client, world: World) -> None:
    client = APIClient()
    client.cookies.update(reader.cookies)
    found = client.get("/api/v1/search", {"q": "EGM-Run3"}).json()
    assert [group["kind"] for group in found["groups"]] == ["Requests by prep id"]
    assert {hit["name"] for hit in found["groups"][0]["hits"]} == {"pdm_EGM_v1", "pdm_EGM_v10"}
    assert "a campaign that begins with it" in found["looked_for"]
    assert client.get("/api/v1/search").json()["field"] == "q"
    assert client.get("/api/v1/search", {"q": "x" * 701}).status_code == 400


@pytest.mark.parametrize("asked", FORMS)
def test_each_look_up_is_one_statement_over_an_index(world: World, asked: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        search(asked)
    asked_for = statements(captured)
    assert 0 < len(asked_for) <= 7
    with connection.cursor() as cursor:
        # What autovacuum may have learned of tables with a row or none: the planner takes each for ten pages again.
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])", [list(LARGE_TABLES)])
        cursor.execute(
            "UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = ANY(%s::regclass[])"
            " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = ANY(%s::regclass[]))",
            [list(LARGE_TABLES)] * 2,
        )
        for way in ("seqscan", "bitmapscan"):  # by which a few rows are read faster
            cursor.execute(f"SET LOCAL enable_{way} = off")
        for sql in asked_for:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            scanned = [table for table in LARGE_TABLES if f"Seq Scan on {table}" in plan]
            assert scanned == [], plan
            assert "Index Cond" in plan or "sites" in sql or "schedds" in sql, plan
            assert "Sort" not in plan or "LIMIT" not in sql or "sites" in sql or "schedds" in sql, plan
        for way in ("seqscan", "bitmapscan"):
            cursor.execute(f"SET LOCAL enable_{way} = on")
