"""Checks of a schedd before DAGs may go to it: questions first, then a canary DAG, submitted at most once (ADR 0026).

A row is processed by any process until it ends. The canary follows the protocol of DAGs (ADR 0002), simpler because one is
submitted once or never: queue and history are searched, the intent is committed, it is submitted, and its outcome is read. A
schedd that is silent meanwhile changes nothing until the time is over.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Q

from dags_app.models import DAG, LIVE_DAG, LIVE_SITE_JOB, SiteJob
from dags_app.payload.build import build_payload
from dags_app.payload.contract.files import tail_text
from dags_app.payload.contract.layout import SCRIPTS_LOG, SITE_ATTRIBUTE
from dags_app.payload.post.eventlog import EXECUTE, attribute, read_events
from dags_app.planning.canary import ANSWER, LANDINGS, NODES_LOG, OUTER, PAYLOAD, canary_files
from dags_app.services.site_jobs import intent_closed_after, proved_absent
from dags_app.services.submit import accounting, credential_obstacle
from sites_app.bans import AUTOMATIC
from sites_app.models import Onboarding, OnboardingState, Pool, PoolSite, Schedd, ScheddState, SiteStatus
from sites_app.schedds import adapter, schedd_broke
from sites_app.submit_roots import CANARIES, MARKER, RESERVED, root_instance, root_mark, root_refused
from wms2.adapters import caller, factory
from wms2.adapters.caller import HeldLease, working_under
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.htcondor_ads import LIMITS
from wms2.adapters.types import HistoryAd, ScheddFacts
from wms2.audit import audit, audited
from wms2.conf import conf
from wms2.errors import InvalidTransition, LeaseLost, ServiceRejected, Wms2Error
from wms2.runtime import clock
from wms2.runtime.crash import crash_point
from wms2.runtime.credentials import CREDENTIAL_ALERT_SECONDS
from wms2.runtime.notify import CHECK_ONBOARDINGS, notify
from wms2.runtime.passes import row_by_itself

#: What the submit directory of a schedd must have left, in MiB, for the schedd to be enabled.
_SUBMIT_ROOT_FREE_MB = 1024

log = structlog.get_logger(__name__)
S = OnboardingState
#: What the files of DAGs and the ads are known to be right for (docs/design/htcondor.md).
OLDEST_HTCONDOR = (23, 9)
_CANARY = "canary DAG"
#: A negotiator that spreads has no more than this share of equal jobs at one of several sites.
_FEWEST_SITES, _MOST_AT_ONE_SITE = 2, 0.7


class CheckFailed(Wms2Error):
    """What a check found wrong, and what to do."""


def schedd_check(*, schedd: Schedd, actor: str, reason: str) -> Onboarding:
    """Have the schedd checked; it is carried out by ``onboardings_process``.

    Raises:
        InvalidTransition: it is being checked already.
    """
    with audited(actor=actor, action="schedd_check", target=schedd.name, target_type="schedd", reason=reason):
        try:
            with transaction.atomic():
                row = Onboarding.objects.create(schedd=schedd, actor=actor, reason=reason)
        except IntegrityError as error:
            raise InvalidTransition(f"{schedd.name} is being checked already") from error
        notify(CHECK_ONBOARDINGS)
        return row


def onboardings_process() -> None:
    """Carry on with all that have not ended."""
    for row in Onboarding.objects.filter(ended_at=None).select_related("schedd__pool").order_by("created_at"):
        with row_by_itself("onboardings", row.schedd.name, partial(schedd_broke, row.schedd)):
            try:
                if row.state == S.CHECKING:
                    _check(row)
                if row.state == S.CANARY:
                    _follow(row)
            except (Wms2Error, LeaseLost, OSError) as error:
                log.warning("schedd not checked, next time again", schedd=row.schedd.name, error=str(error))
                if _over(row):
                    _end(row, f"its schedd was silent at the end ({error}); look there for DAG {row.pk}")


def _check(row: Onboarding) -> None:
    """Ask all questions, also after a failed one: an operator sees everything at once."""
    schedd, facts = row.schedd, cache(adapter(row.schedd).facts)
    checks: dict[str, Callable[[], str]] = {
        "reachable": lambda: _reachable(schedd, facts),
        "version": lambda: _version(facts()),
        "credential": lambda: _credential(schedd, facts),
        "submit directory": lambda: _directory(schedd),
        "limits": lambda: _limits(schedd, facts()),
        "sites": lambda: _sites(schedd),
        "Rucio account": _rucio_account,
    }
    said = []
    for name, ask in checks.items():
        try:
            said.append(_answer(name, True, ask()))
        except (Wms2Error, OSError) as error:
            said.append(_answer(name, False, str(error)))
    row.checks, wrong = said, [f"{each['check']}: {each['told']}" for each in said if not each["passed"]]
    if wrong:
        _end(row, "; ".join(wrong), said)
    elif Onboarding.objects.filter(pk=row.pk, state=S.CHECKING).update(state=S.CANARY, checks=said):
        row.state = S.CANARY


def _answer(check: str, passed: bool, text: str) -> dict[str, Any]:
    return {"check": check, "passed": passed, "told": text[:2000], "at": clock.now().isoformat()}


def _reachable(schedd: Schedd, facts: Callable[[], ScheddFacts]) -> str:
    if adapter(schedd).collector_ad() is None:
        raise CheckFailed(f"the collector {schedd.pool.collector} has no ad of it")
    birthdate = facts().about.job_queue_birthdate_seconds
    same = Schedd.objects.filter(name=schedd.name, job_queue_birthdate=birthdate).exclude(pk=schedd.pk).first()
    if birthdate is not None and same is not None:
        raise CheckFailed(f"its queue is the one of the schedd of this name in pool {same.pool_id}; one of these rows has to go")
    unwatched = Schedd.objects.filter(pk=schedd.pk, onboarded_at=None, state=ScheddState.DISCOVERED)
    unwatched.update(job_queue_birthdate=birthdate)  # what is in use is watched, which writes it down
    return "the collector has its ad, and it answers itself"


def _version(facts: ScheddFacts) -> str:
    version = facts.about.version
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_HTCONDOR:
        raise CheckFailed(f"HTCondor {version}; the oldest that is known to do is {'.'.join(map(str, OLDEST_HTCONDOR))}")
    return f"HTCondor {version}"


def _credential(schedd: Schedd, facts: Callable[[], ScheddFacts]) -> str:
    """Of the pool's tokens one must last; whose jobs are with the one that the schedd takes."""
    found = factory.pool_credentials(schedd.pool.token_dir)
    wrong = []
    for each in found:
        try:
            each.require(CREDENTIAL_ALERT_SECONDS)
        except Wms2Error as error:
            wrong.append(str(error))
    if wrong and len(wrong) == len(found):
        raise CheckFailed("; ".join(wrong))
    if schedd.pool.token_dir and not found:
        raise CheckFailed(f"there is no token in {schedd.pool.token_dir}")
    if why := credential_obstacle():
        raise CheckFailed(why)
    said = f"{len(found) - len(wrong)} of {len(found)} tokens are good for long" if found else "by HTCondor's own configuration"
    return f"{said}; jobs are {_owner(schedd, facts())}'s"


def _owner(schedd: Schedd, facts: ScheddFacts) -> str:
    """As whom it takes our submissions. Jobs of a former owner would be known no more, and submitted again."""
    owner, former = facts.about.owner, schedd.owner
    if former and owner != former:
        may_run = Q(status__in=LIVE_DAG) | Q(lost_confirmed_at__isnull=False, lost_settled_at=None)
        dags = DAG.objects.filter(may_run, schedd=schedd)
        if left := dags.count() + SiteJob.objects.filter(schedd=schedd, state__in=LIVE_SITE_JOB).count():
            raise CheckFailed(
                f"jobs would be {owner}'s by now, and {left} DAGs and site jobs there are {former}'s: bring back the former"
                " credential until they have ended"
            )
    if owner != former:
        Schedd.objects.filter(pk=schedd.pk).update(owner=owner)
        schedd.owner = owner
    return owner


def _directory(schedd: Schedd) -> str:
    """That it is for WMS2 alone; that the schedd sees it too, the canary shows, and then it is marked."""
    place = Path(schedd.submit_root)
    if root_refused(place):
        _refuse_others(place)
    probe = place / f".wms2-{schedd.pk}"
    probe.write_text("")
    probe.unlink()
    free_mb = shutil.disk_usage(place).free >> 20
    if free_mb < _SUBMIT_ROOT_FREE_MB:
        raise CheckFailed(f"{place} has {free_mb} MB left; {_SUBMIT_ROOT_FREE_MB} are needed")
    return f"{place} can be written to and has {free_mb} MB left"


def _refuse_others(place: Path) -> None:
    """Requests are removed from it: nothing of others may lie beside them."""
    if root_instance(place):
        raise CheckFailed(root_refused(place))
    names = {path.name for path in place.iterdir() if not path.name.startswith(".")} - RESERVED
    ours = DAG.objects.filter(workflow__request_id__in=names).values_list("workflow__request_id", flat=True)
    if others := names - set(ours):
        raise CheckFailed(
            f"{place} holds what is not WMS2's, e.g. {min(others)}: give the schedd a directory of its own, or, if all of it is"
            f" WMS2's, write {conf().instance} into {place / MARKER} and check again"
        )


def _limits(schedd: Schedd, facts: ScheddFacts) -> str:
    said, wanted = [], schedd.max_dagman_slots
    for name, most in zip(LIMITS, (facts.jobs_per_owner, facts.dagmans_per_owner, facts.dagmans), strict=True):
        if most is not None and most < wanted:
            raise CheckFailed(f"it has {name} = {most}: raise that there, or lower max_dagman_slots ({wanted}) here")
        said.append(f"{name} = {'none' if most is None else most}")
    return ", ".join(said)


def _sites(schedd: Schedd) -> str:
    names = _sites_of(schedd)
    if not names:
        raise CheckFailed(f"no enabled site has slots in pool {schedd.pool_id}, as its collector said last")
    return f"{len(names)} enabled sites have slots in its pool"


def _rucio_account() -> str:
    """What runs there is stored and registered, or all of it is for nothing."""
    if problems := factory.rucio().account_problems():
        raise CheckFailed("; ".join(problems))
    return f"{conf().rucio_account} may register and protect outputs"


def _sites_of(schedd: Schedd) -> frozenset[str]:
    rows = PoolSite.objects.filter(pool=schedd.pool, total_slots__gt=0, site__status=SiteStatus.ENABLED)
    return frozenset(rows.values_list("site_id", flat=True))


# --- the canary


def _follow(row: Onboarding) -> None:
    condor = adapter(row.schedd)
    found = condor.find_dag(str(row.pk), row.created_at)
    if found is None:
        if row.intent_at is None:
            _submit(condor, row)
        elif proved_absent(row):
            _end(row, f"neither queue nor history of {row.schedd.name} know it")
    elif found.history is not None:
        _read(row, found.history)
    elif _over(row):
        condor.remove(found.cluster, "the canary has had its time", str(row.pk))
    else:
        Onboarding.objects.filter(pk=row.pk, state=S.CANARY).update(cluster=str(found.cluster), missing_since=None)


def _over(row: Onboarding) -> bool:
    return clock.now() > (row.intent_at or row.created_at) + timedelta(seconds=conf().canary_seconds)


def _submit(condor: HtcondorAdapter, row: Onboarding) -> None:
    settings, place = conf(), Path(row.schedd.submit_root) / CANARIES / str(row.pk)
    sites = _sites_of(row.schedd)
    files = canary_files(str(row.pk), settings.instance, sites, accounting=accounting())
    begun, now = caller.since_boot(), clock.now()  # before the intent: who is paused in between has no time left to submit
    mine = Onboarding.objects.filter(pk=row.pk, state=S.CANARY, intent_at=None)
    if mine.update(intent_at=now, directory=str(place)) != 1:
        return  # another process submits it
    crash_point("canary.claimed")
    ours = Onboarding.objects.filter(pk=row.pk, state=S.CANARY, cluster="", intent_at=now)
    with intent_closed_after(OSError, ours):  # not before: another process may have submitted it, and its DAGMan reads this
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(text)
        build_payload(place / PAYLOAD)
    stamps = {"WMS2_Instance": settings.instance, "WMS2_DagID": str(row.pk), "WMS2_Canary": row.schedd.name}
    try:
        with working_under(HeldLease(begun + settings.submit_timeout_seconds)), intent_closed_after(LeaseLost, ours):
            cluster = condor.submit_dag(place, OUTER, stamps, 0, begun)
    except ServiceRejected as error:
        _end(row, str(error))
        return
    crash_point("canary.called")
    Onboarding.objects.filter(pk=row.pk, state=S.CANARY).update(cluster=str(cluster))
    log.info("canary submitted", schedd=row.schedd.name, dag_id=str(row.pk), cluster=cluster)


def _read(row: Onboarding, history: HistoryAd) -> None:
    """It counts when DAGMan has ended well, its files are here, and the job's answer came back through them."""
    place = Path(row.directory)
    seen_here = (place / f"{OUTER}.metrics").is_file()
    if history.exit_code == 0 and seen_here and tail_text(place / ANSWER, 1).strip() == str(row.pk):
        root_mark(Path(row.schedd.submit_root))
        row.checks = [*row.checks, _answer("spread of landings", True, _spread(row, place))]
        _end(row, "")
        shutil.rmtree(place, ignore_errors=True)
        return
    why = f"its DAGMan ended with {history.exit_code}"
    if history.remove_reason:
        why = f"removed: {history.remove_reason}"
    elif not seen_here:
        why += ", and what it wrote is not to be seen here: is the directory on a file system that the schedd shares?"
    elif said := tail_text(place / SCRIPTS_LOG, 1):
        why += f": {said}"
    _end(row, f"{why}; {place} is kept")


def _spread(row: Onboarding, place: Path) -> str:
    """What came of the jobs that were submitted at once. Written to the pool: where it does not spread them, WMS2 does."""
    events = [event for event in read_events(place / NODES_LOG) if event.number == EXECUTE]
    ran = {event.job_id: site for event in events if (site := attribute(event, SITE_ATTRIBUTE))}  # each where it ran last
    found, sites = Counter(ran.values()), len(_sites_of(row.schedd))
    if found.total() < LANDINGS or sites < _FEWEST_SITES:
        return f"{found.total()} of {LANDINGS} jobs ran, {sites} sites have slots: how its negotiator spreads is not known"
    site, most = found.most_common(1)[0]
    spreads = most <= _MOST_AT_ONE_SITE * found.total()
    Pool.objects.filter(pk=row.schedd.pool_id).update(spreads=spreads)
    said = f"of {found.total()} jobs at once {most} ran at {site}, with {sites} sites to choose from"
    if spreads:
        return f"{said}: its negotiator spreads landings"
    advice = "set NEGOTIATOR_PRE_JOB_RANK = Cpus at its negotiator to have it choose by free slots, then check again"
    return f"{said}: its negotiator fills one site after the other, so WMS2 spreads landings by slots; {advice}"


def _end(row: Onboarding, problem: str, checks: list[dict[str, Any]] | None = None) -> None:
    """``problem``: what failed it, "" when it passed. What is known of the schedd goes with it, in one transaction."""
    state, now = (S.FAILED if problem else S.PASSED), clock.now()
    if checks is None:
        checks = [*row.checks, _answer(_CANARY, not problem, problem or "it ran at a site and ended well")]
    with transaction.atomic():
        if Onboarding.objects.filter(pk=row.pk, ended_at=None).update(state=state, checks=checks, ended_at=now) != 1:
            return
        said = problem if checks[-1]["check"] != _CANARY or not problem else f"{_CANARY}: {problem}"
        Schedd.objects.filter(pk=row.schedd_id).update(onboarded_at=None if problem else now, onboarding=said[:4000])
        audit(
            actor=AUTOMATIC, action="schedd_checked", target=row.schedd.name, target_type="schedd", refused=bool(problem),
            reason=said or "all checks passed", checks=checks,
        )  # fmt: skip
    row.state = state
    crash_point("canary.recorded")
    (log.error if problem else log.info)("schedd checked", schedd=row.schedd.name, passed=not problem, problem=said)
