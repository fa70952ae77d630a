"""A site whose storage is a server, reached over root:// alone, that goes away in the middle of a request."""

from __future__ import annotations

import html
import time
from pathlib import Path

import pytest
from django.db.models import QuerySet
from django.test import Client

from dags_app.models import FailureCategory, FailureGroup, FailureRule
from outputs_app.models import OutputFile
from requests_app.models import Request
from tests.support.faults import fault
from tests.support.inputs import seeded_input, small_reprocessing
from tests.support.outcomes import assert_completed_once, assert_each_event_once, ended, imported
from tests.support.stack import worker
from tests.support.xrootd import away, of_the_stack

pytestmark = [
    pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow,
    pytest.mark.xdist_group("the XRootD server"),
]  # fmt: skip
SITE, FILES, EVENTS = "T2_DE_DESY", 6, 60
AWAY_SECONDS = 60.0
#: What a job says that cannot read from its storage, or write to it (docs/errors.md).
STORAGE_CODES = {8020, 60311, 60315, 60317}


@fault(
    "storage server away",
    done="the XRootD server of a request's only site is killed, and stays away for a minute",
    spec="spec 4.7; error-handling 4.2",
    afterwards="told as trouble of the site's storage; COMPLETED with every event and every file once, nothing left over",
)
@pytest.mark.deep("tests/dags_app/payload/test_storage.py::test_a_server_that_comes_back_costs_no_file")
def test_a_storage_server_that_is_away_for_a_minute_costs_tries_and_no_work(
    ready: None, tmp_path: Path, admin_client: Client
) -> None:
    document = small_reprocessing(seeded_input(tmp_path, files_per_site=FILES, events=EVENTS, rses=(SITE,)))
    document["createRequest"] |= {"FilesPerJob": 1, "IncludeParents": False}
    document["assignRequest"]["SiteWhitelist"] = [SITE]
    string = document["createRequest"]["ProcessingString"]
    request = imported(document)
    server = of_the_stack()
    with worker(jobs_per_work_unit=2) as running:
        running.wait(lambda: bool(files_of(string, server.storage)), seconds=180)
        begun = time.monotonic()
        with away(server):
            running.wait(lambda: time.monotonic() - begun > AWAY_SECONDS, seconds=AWAY_SECONDS * 2)
            assert not ended(request)
        running.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request)
    assert_each_event_once(request, FILES * EVENTS)
    known = {f"{server.storage}{lfn}": size for lfn, size in outputs(request).values_list("lfn", "size_bytes")}
    assert files_of(string, server.storage) == known
    groups = list(FailureGroup.objects.filter(workflow__request=request))
    assert groups
    assert {(group.category, group.site) for group in groups} == {(FailureCategory.INFRASTRUCTURE, SITE)}
    assert {group.code for group in groups} <= STORAGE_CODES, groups
    page = admin_client.get(f"/requests/{request.request_name}/").content.decode()
    meanings = FailureRule.objects.filter(name__in=[group.rule for group in groups]).values_list("note", flat=True)
    assert all(html.escape(meaning) in page for meaning in meanings)


def files_of(string: str, storage: Path) -> dict[str, int]:
    """Sizes of the files that a request wrote, merged or not, by path; its processing string is in the names."""
    found = {str(path): path for path in storage.rglob("*") if f"/{string}-v" in str(path) and path.is_file()}
    return {name: path.stat().st_size for name, path in found.items()}


def outputs(request: Request) -> QuerySet[OutputFile]:
    return OutputFile.objects.filter(dataset__workflow=request.workflow)
