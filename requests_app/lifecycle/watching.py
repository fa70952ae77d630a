"""The cycle's look at the schedds: all are asked side by side, and what one says is written as it comes (ADR 0014).

A silent schedd delays only the end of the cycle: the leader polls meanwhile. Threads only ask; rows are read before
and written after by the leader's own, each schedd's in one transaction that proves that it still leads.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial

import structlog
from django.db.models import Exists, OuterRef, Q

from dags_app.models import DAG, DAGHistory
from dags_app.selectors import schedd_in_use
from dags_app.services.failures import unread_waves
from dags_app.services.orphans import Orphan, orphans_ask, orphans_known, orphans_report
from dags_app.services.watch import Observed, ScheddAnswer, ScheddCheck, checks_of, schedd_observe, sites_count
from dags_app.states import history
from requests_app.admission.placement import units_follow
from requests_app.alerts import alert, report_broken
from requests_app.feed import emit_event
from requests_app.lease import ACTOR
from requests_app.lifecycle.leader import Leadership, lease_life
from requests_app.models import EVALUATED
from sites_app.guard import guard_check
from sites_app.models import Schedd
from sites_app.schedds import adapter, schedd_broke
from wms2.audit import audit
from wms2.conf import conf
from wms2.errors import ServiceRejected, ServiceUnavailable
from wms2.runtime import clock
from wms2.runtime.locks import Fenced, unless_locked
from wms2.runtime.parallel import side_by_side
from wms2.runtime.passes import row_by_itself

log = structlog.get_logger(__name__)
#: Event type in DAGHistory and in the feed.
RETURNED = "dag.returned"
#: Between two looks in a schedd's queue for jobs of ours that no live DAG knows.
_STRAY_PAUSE = timedelta(seconds=600)


def schedds_to_watch() -> list[Schedd]:
    """All that get DAGs or have live ones; where only lost ones might come back, once in each suspicion window is enough."""
    long_ago = clock.now() - timedelta(seconds=conf().schedd_suspicion_seconds)
    due = Q(asked_at__isnull=True) | Q(asked_at__lt=long_ago)
    lost = Exists(DAG.objects.filter(schedd=OuterRef("pk"), lost_confirmed_at__isnull=False, lost_settled_at__isnull=True))
    return list(Schedd.objects.filter(schedd_in_use() | (due & lost)).order_by("pk"))


def schedds_watch(leadership: Leadership, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Observe all schedds; then remove jobs that must not run, and look for those that no row names.

    Args:
        meanwhile: called every few seconds while a silent one is waited for.

    Raises:
        LeaseLost: another process leads by now.
    """
    fenced, seen = leadership.fenced, dict[Schedd, Observed]()
    rows = {check.schedd: check for check in checks_of(schedds_to_watch())}
    questions = {schedd: partial(check.ask, conf().instance) for schedd, check in rows.items()}
    for schedd, answer in side_by_side(questions, _keeping(leadership, meanwhile)):
        with _by_itself(schedd):
            seen[schedd] = _heard(rows[schedd], answer, fenced)
    with unless_locked("sites"), fenced():
        sites_count(clock.now())
    with unless_locked("guard"):
        guard_check(fenced, unread_waves().words)
    astray = {}
    for schedd, observed in seen.items():
        with _by_itself(schedd):
            if jobs := orphans_reported(schedd, observed.orphans, fenced):
                astray[schedd] = partial(orphans_remove, schedd, jobs)
    for _ in side_by_side(astray, _keeping(leadership, meanwhile)):
        pass
    now = clock.now()
    answered = [schedd for schedd, observed in seen.items() if observed.answered]
    looked = [each for each in answered if each.orphans_asked_at is None or each.orphans_asked_at <= now - _STRAY_PAUSE]
    for schedd, found in side_by_side(
        {schedd: partial(orphans_ask, schedd, orphans_known(schedd, now)) for schedd in looked}, _keeping(leadership, meanwhile)
    ):
        if found is not None:
            with _by_itself(schedd):
                orphans_report(schedd=schedd, found=found, now=now, fenced=fenced)


def _by_itself(schedd: Schedd) -> AbstractContextManager[None]:
    return row_by_itself("schedds", schedd.name, partial(schedd_broke, schedd))


def dag_by_itself(dag_id: uuid.UUID) -> AbstractContextManager[None]:
    """One DAG of those that a schedd has named; what breaks is said on its request."""
    return row_by_itself("schedds", dag_id, partial(report_broken, workflow__dags=dag_id))


def dags_follow(leadership: Leadership, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The units that DAGs run at once follow their shares (ADR 0004); a DAGMan that was not reached is asked by the next cycle.

    Args:
        meanwhile: called every few seconds while a silent schedd is waited for.

    Raises:
        LeaseLost: another process leads by now.
    """
    changed = defaultdict[Schedd, list[DAG]](list)
    for dag in units_follow(leadership.fenced):
        if dag.schedd is not None:
            changed[dag.schedd].append(dag)
    questions = {schedd: partial(_set_units, schedd, dags) for schedd, dags in changed.items()}
    for _ in side_by_side(questions, _keeping(leadership, meanwhile)):
        pass


def _set_units(schedd: Schedd, dags: Sequence[DAG]) -> None:
    for dag in dags:
        try:
            adapter(schedd).set_units_at_once(int(dag.dagman_cluster_id), str(dag.pk), dag.merge_groups)
        except (ServiceUnavailable, ServiceRejected) as error:
            log.warning("units at once not set", schedd=schedd.name, dag_id=str(dag.pk), error=str(error))
            if isinstance(error, ServiceUnavailable):
                break


def _heard(check: ScheddCheck, answer: ScheddAnswer, fenced: Fenced) -> Observed:
    """Write what a schedd has said; evidence of a lost queue goes into the audit."""
    seen = schedd_observe(check=check, answer=answer, fenced=fenced, by_itself=dag_by_itself)
    if seen.change is not None:
        with fenced():
            audit(
                actor=ACTOR, action="schedd_queue_changed", target=check.schedd.name, target_type="schedd",
                reason="the schedd answers with another job queue; what was in the former one may be lost",
                old_birthdate=seen.change.old_birthdate, new_birthdate=seen.change.new_birthdate,
            )  # fmt: skip
    return seen


def _keeping(leadership: Leadership, meanwhile: Callable[[], None]) -> Callable[[], None]:
    """Leads on while schedds are waited for, as long as their time limits allow: a leader that hangs must lose its lease."""
    until = time.monotonic() + lease_life().total_seconds()

    def keep() -> None:
        if time.monotonic() < until:
            leadership.renew()
            meanwhile()

    return keep


def orphans_reported(schedd: Schedd, orphans: Iterable[Orphan], fenced: Fenced) -> dict[int, str]:
    """DAGMan jobs of DAGs that have ended, back in a queue that had been given up. Each is reported once: DAG's history, feed,
    audit and an alert. Returns those that are not on their way out, to be removed: cluster -> DAG.

    Never adopted: their work may have been planned anew, under other names.

    Raises:
        LeaseLost: another process leads by now; what was seen is of the past, and nothing is removed.
    """
    remove = {}
    for orphan in orphans:
        with dag_by_itself(orphan.dag.pk), fenced():
            _report_once(schedd, orphan)
        if not orphan.being_removed:
            remove[orphan.cluster] = str(orphan.dag.pk)
    return remove


def orphans_remove(schedd: Schedd, dag_ids: Mapping[int, str]) -> None:
    """Ask the schedd once for all of them; each cycle does so until they are on their way out. May run in any thread."""
    try:
        adapter(schedd).remove_all(dag_ids, "its DAG has ended, or was submitted again; this job of it must not run")
    except (ServiceUnavailable, ServiceRejected) as error:
        log.warning("orphan DAGMan jobs not removed, next cycle again", clusters=[*dag_ids], error=str(error))


def _report_once(schedd: Schedd, orphan: Orphan) -> None:
    dag, request = orphan.dag, orphan.dag.workflow.request
    known = DAGHistory.objects.filter(dag=dag, event_type=RETURNED, detail__cluster=orphan.cluster, detail__fence=orphan.fence)
    if known.exists():
        return
    what = f"DAGMan job {orphan.cluster} of DAG {dag.pk} is in the queue of {schedd.name}, and the DAG has ended; it is removed"
    detail = {"cluster": orphan.cluster, "fence": orphan.fence, "schedd": schedd.name, "lost": dag.outcome.get("lost", False)}
    history(dag, RETURNED, detail=detail)
    emit_event(RETURNED, request, dag=str(dag.pk), message=what, **detail)
    audit(actor=ACTOR, action="dag_remove_returned", target=dag.pk, target_type="dag", reason=what, **detail)
    if request.status in EVALUATED:  # nothing takes an alert off a request at its end
        alert(request, "dag_returned", what)
    log.error("a DAG that has ended is in the queue again", request_name=request.request_name, dag_id=str(dag.pk), **detail)
