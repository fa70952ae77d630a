"""Jobs at sites are looked after one by one: what breaks at one is said on it, and keeps no other waiting."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from dags_app.models import SiteJob, SiteJobPurpose, SiteJobState
from dags_app.payload.contract.layout import SITE_TASK_FILE
from dags_app.payload.contract.site_tasks import RemovalTask
from dags_app.services import site_jobs
from dags_app.services.site_jobs import Work, site_jobs_process
from sites_app.models import Schedd, ScheddState
from tests.support.rows import schedd_row
from wms2.errors import ServiceRejected, ServiceUnavailable

pytestmark = pytest.mark.django_db
S = SiteJobState


class Condor:
    """Both jobs are in its queue; it refuses to remove any as long as ``error`` is set."""

    error: Exception | None = None

    def find_job(self, job_id: str, since: Any) -> SimpleNamespace:
        return SimpleNamespace(history=None, cluster=1, fence=None)

    def remove_job(self, cluster: int, job_id: str, reason: str) -> None:
        if self.error is not None:
            raise self.error


def kept(job: SiteJob) -> tuple[str, str]:
    job.refresh_from_db()
    return job.state, job.problem


@pytest.mark.parametrize(
    "error", [ServiceRejected("htcondor", "remove_job", "the token may not remove it", "denied"), ValueError("may not be read")]
)
def test_one_whose_removal_is_refused_keeps_no_later_one_waiting(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedd, long_ago = schedd_row(submit_root=str(tmp_path)), timezone.now() - timedelta(days=3)
    where = {"purpose": SiteJobPurpose.REMOVE, "schedd": schedd}
    first = SiteJob.objects.create(
        site="T2_A", directory=str(tmp_path / "1"), state=S.SUBMITTED, cluster="1", intent_at=long_ago, **where
    )
    second = SiteJob.objects.create(site="T2_B", directory=str(tmp_path / "2"), **where)
    condor = Condor()
    condor.error = error
    monkeypatch.setattr(site_jobs, "adapter", lambda schedd: condor)
    work = Work(task=lambda job: None, settle=lambda job, result: None, wanted=lambda site: True)
    site_jobs_process(purpose=SiteJobPurpose.REMOVE, work=work)
    assert kept(second)[0] == S.DONE, "nothing was left to do there"
    assert kept(first)[0] == S.SUBMITTED
    assert "may not" in kept(first)[1]
    condor.error = None
    site_jobs_process(purpose=SiteJobPurpose.REMOVE, work=work)
    assert kept(first) == (S.SUBMITTED, "")


def test_one_at_a_silent_schedd_that_is_disabled_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> None:
        raise ServiceUnavailable("htcondor", "find_job", "the collector knows no schedd")

    monkeypatch.setattr(Condor, "find_job", silent)
    monkeypatch.setattr(site_jobs, "adapter", lambda schedd: Condor())
    settled = list[str]()
    work = Work(task=lambda job: None, settle=lambda job, result: settled.append(job.site), wanted=lambda site: True)
    schedd, now = schedd_row(submit_root=str(tmp_path)), timezone.now()
    jobs = [
        SiteJob.objects.create(
            site=site, purpose=SiteJobPurpose.LIST, schedd=schedd, directory=str(tmp_path / site), state=state,
            intent_at=now - timedelta(hours=hours),
        )
        for site, state, hours in (("T2_A", S.SUBMITTED, 25), ("T2_B", S.PREPARED, 25), ("T2_C", S.SUBMITTED, 23))
    ]  # fmt: skip
    site_jobs_process(purpose=SiteJobPurpose.LIST, work=work)
    assert not settled, "a silent schedd proves nothing"
    Schedd.objects.update(state=ScheddState.DISABLED)
    site_jobs_process(purpose=SiteJobPurpose.LIST, work=work)
    assert [kept(job)[0] for job in jobs] == [S.FAILED, S.FAILED, S.SUBMITTED]
    assert all("knows no schedd" in kept(job)[1] for job in jobs)
    assert sorted(settled) == ["T2_A", "T2_B"], "what they were to do is done by others"


def test_one_that_was_refused_or_never_arrived_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Condor):
        def find_job(self, job_id: str, since: Any) -> None:
            return None

        def submit_job(self, place: Path, *rest: Any) -> None:
            assert (place / SITE_TASK_FILE).is_file()
            raise ServiceRejected("htcondor", "submit_job", "the token may not submit it", "denied")

    schedd, long_ago = schedd_row(submit_root=str(tmp_path)), timezone.now() - timedelta(days=3)
    where = {"purpose": SiteJobPurpose.REMOVE, "schedd": schedd}
    lost = {"state": S.SUBMITTED, "cluster": "1", "intent_at": long_ago, "missing_since": long_ago}
    jobs = [
        SiteJob.objects.create(site=f"T2_{n}", directory=str(tmp_path / n), **where, **of) for n, of in (("A", {}), ("B", lost))
    ]
    (tmp_path / "B").mkdir()
    monkeypatch.setattr(site_jobs, "adapter", lambda schedd: Refusing())
    task = RemovalTask("1", "T2_A", 0.0, 0.0, 1, (), frozenset(), ())
    work = Work(task=lambda job: task, settle=lambda job, result: None, wanted=lambda site: True)
    site_jobs_process(purpose=SiteJobPurpose.REMOVE, work=work)
    assert [kept(job)[0] for job in jobs] == [S.FAILED, S.FAILED]
    assert [path.name for path in tmp_path.iterdir()] == []
