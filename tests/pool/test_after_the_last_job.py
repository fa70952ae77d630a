"""The way from the last registration to COMPLETED on a real pool: storage looked at, leftovers removed, by jobs at the site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dags_app.models import DAG, Leftover, SiteJob, SiteJobPurpose, SiteJobState
from outputs_app.models import BlockValidation, StorageCheck
from requests_app.models import Request, RequestStatus, RequestTransition
from tests.support.outcomes import assert_completed_once, ended, imported
from tests.support.stack import worker

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.simulators, pytest.mark.slow]
S = RequestStatus


def test_outputs_are_validated_and_leftovers_gone_before_it_is_completed(ready: None) -> None:
    request = imported(events=20)
    with worker(WMS2_STORAGE_CHECKS_ENABLED="true") as running:
        running.wait(lambda: ended(request), seconds=300)
    assert_completed_once(request)
    at = {row.to_status: row.at for row in RequestTransition.objects.filter(request=request)}
    print("\n".join(f"{(when - at[S.VALIDATING_OUTPUTS]).total_seconds():8.1f} s  {status}" for status, when in at.items()))
    assert not BlockValidation.objects.filter(validated_at=None).exists()
    assert StorageCheck.objects.exists()
    assert not StorageCheck.objects.filter(done_at=None).exists()
    jobs = SiteJob.objects.filter(purpose__in=(SiteJobPurpose.LIST, SiteJobPurpose.REMOVE))
    assert {job.state for job in jobs} == {SiteJobState.DONE}
    assert {job.purpose for job in jobs} == {SiteJobPurpose.LIST, SiteJobPurpose.REMOVE}
    assert not Leftover.objects.filter(settled_at=None).exists()
    assert Request.objects.get(pk=request.pk).workflow.inputs_removed_at is not None
    dag = Path(DAG.objects.get(workflow__request=request).submit_dir)
    unmerged = [each["pfn"] for path in dag.glob("mg_*/proc_*.report.json") for each in json.loads(path.read_text())["outputs"]]
    assert unmerged
    assert not [pfn for pfn in unmerged if Path(pfn.removeprefix("file://")).exists()]
