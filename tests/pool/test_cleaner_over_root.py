"""The cleaner at a site whose storage is a server, reached over root:// alone."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest

from dags_app.models import Leftover, SiteJob, SiteJobState, WorkUnit
from dags_app.payload.contract import documents, names
from outputs_app.models import OutputFile
from requests_app.lifecycle import cleaner
from requests_app.lifecycle.cleaner import leftovers_remove
from requests_app.models import RequestStatus
from tests.support.outcomes import ended, imported, status
from tests.support.stack import small_request, worker
from tests.support.xrootd import of_the_stack

pytestmark = [
    pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow,
    pytest.mark.xdist_group("the XRootD server"),
]  # fmt: skip


@pytest.mark.deep("tests/pool/test_cleaner.py::test_a_loser_is_removed_by_one_job_at_the_site_though_its_submitter_was_killed")
def test_a_loser_is_removed_from_a_storage_that_is_reached_over_root_alone(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    document = small_request(events=20)
    document["assignRequest"]["SiteWhitelist"] = ["T2_DE_DESY"]
    request = imported(document)
    with worker(WMS2_CLEANER_ENABLED="0") as running:  # what is left is put there when it has completed
        running.wait(lambda: ended(request), seconds=240)
    assert status(request) == RequestStatus.COMPLETED
    unit = WorkUnit.objects.select_related("dag").get(workflow__request=request)
    dag, storage = Path(unit.dag.submit_dir), of_the_stack().storage
    job = documents.read_job(dag)
    late = f"{job.outputs[0].merged_lfn_base}/00000/{uuid.uuid5(job.workflow_id, 'late')}.root"
    kept = list(OutputFile.objects.filter(unit=unit).values_list("lfn", flat=True))
    journals = Path(f"{storage}{names.journals_lfn(job, documents.read_unit(dag / unit.name), 'merge')}")
    Path(f"{storage}{late}").write_text("late")
    journals.mkdir(parents=True)
    (journals / "merge.1.json").write_text(json.dumps({"schema": "wms2.journal/1", "files": [late, *kept]}))
    monkeypatch.setattr(cleaner, "CLEANER_GRACE_DAYS", 0.0)
    until = time.monotonic() + 180
    while not SiteJob.objects.filter(state=SiteJobState.DONE).exists():
        assert time.monotonic() < until, list(SiteJob.objects.values())
        time.sleep(1)
        leftovers_remove()
    row = Leftover.objects.get()
    assert (row.removed, SiteJob.objects.get().result["removed"]) == ([late], 1)
    assert not Path(f"{storage}{late}").exists() and not journals.exists()
    assert all(Path(f"{storage}{lfn}").is_file() for lfn in kept)
