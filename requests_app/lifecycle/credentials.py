"""Credentials in the life cycle: what the leader sees of them, and DAGs whose jobs' one ends (ADR 0014)."""

from __future__ import annotations

from dags_app.models import DAG, IN_QUEUE
from dags_app.services.stop import dag_request_stop
from requests_app.lease import Evaluation
from requests_app.lifecycle.leader import Leadership
from requests_app.models import Request, RequestStatus, StopIntent
from sites_app.selectors import token_dirs
from wms2.adapters import factory
from wms2.runtime.credentials import CredentialUnusable, see
from wms2.runtime.due import mark_due

ACTOR = "credentials"
#: DAGs are stopped when their jobs' credential ends so soon, and go on from their rescue files when it has been renewed.
CREDENTIAL_STOP_SECONDS = 15 * 60


def credentials_watch(leadership: Leadership) -> None:
    """Store with the lease when each ends, for pages and metrics; have running requests evaluated when their jobs' one does."""
    leadership.renew(credentials=[each.as_dict() for each in see(factory.all_credentials(token_dirs()))])
    if _ends():
        with leadership.fenced():
            running = Request.objects.filter(status=RequestStatus.ACTIVE, workflow__dags__status__in=IN_QUEUE)
            mark_due(running.values_list("pk", flat=True), "the jobs' credential ends")


def stop_for_credential(evaluation: Evaluation, dag: DAG) -> bool:
    """Stop a DAG whose jobs would go on without a credential, to be resumed with a renewed one; True when it is so.

    At once: HTCondor refuses to submit nodes with it, and what runs could not store what it makes.
    """
    why = _ends()
    if not why:
        return False
    with evaluation.fenced():
        evaluation.transition(RequestStatus.STOPPING, why, actor=ACTOR, stop_intent=StopIntent.RESUME)
        dag_request_stop(dag=dag, reason=why)
    return True


def _ends() -> str:
    """That it ends within ``CREDENTIAL_STOP_SECONDS``; empty otherwise. A file that cannot be read proves nothing: jobs that
    run have copies of it."""
    carried = factory.job_credential()
    try:
        ends = carried.ends_within(CREDENTIAL_STOP_SECONDS) if carried is not None else ""
    except CredentialUnusable:
        return ""
    return f"its jobs' credential was not renewed: {carried.path}: {ends}" if carried is not None and ends else ""
