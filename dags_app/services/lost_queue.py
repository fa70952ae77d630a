"""The loss of a schedd's queue: the evidence for it, and an operator's confirmation. One button; never by itself.

A word is taken where there is evidence: DAGs that a schedd which answers does not know any more, for longer than the window, or a
schedd that has been silent for longer than the window and whose DAGs write nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from dags_app.models import DAG, DAGStatus
from dags_app.services.lost import DirectoryEvidence, directory_evidence, lost_confirm, missing_words
from dags_app.services.watch import IN_QUEUE
from sites_app.models import QueueChange, Schedd
from sites_app.schedds import birthdate_text
from wms2 import clock
from wms2.audit import audited
from wms2.conf import conf
from wms2.errors import InvalidTransition
from wms2.nudge import EVALUATE_REQUEST, nudge
from wms2.words import counted, exact

#: So many changes of a queue are shown.
_CHANGES = 5


@dataclass(frozen=True, slots=True)
class LostDag:
    """One DAG at the schedd: where it stands, in words, and what lies in its directory."""

    dag: DAG
    request_name: str
    affected: bool  # by a confirmation now
    why: str
    directory: DirectoryEvidence


@dataclass(frozen=True, slots=True)
class Losses:
    """What speaks for and against the loss of a schedd's queue. ``refusal`` is empty when a person may confirm it."""

    schedd: Schedd
    silent_seconds: float | None
    changes: tuple[QueueChange, ...]
    dags: tuple[LostDag, ...]
    refusal: str

    @property
    def affected(self) -> list[LostDag]:
        """DAGs that a confirmation gives up."""
        return [row for row in self.dags if row.affected]

    def words(self) -> list[str]:
        """The evidence as sentences."""
        schedd = self.schedd
        said = [f"Its queue was born {birthdate_text(schedd.job_queue_birthdate)}."]
        said += [
            f"Since {exact(row.seen_at)} it has had another queue, born {birthdate_text(row.new_birthdate)};"
            f" the former one, born {birthdate_text(row.old_birthdate)}, was seen last at {exact(row.old_answered_at)}."
            for row in self.changes
        ]
        if self.silent_seconds is None:
            said.append(f"It answers, last at {exact(schedd.last_answer_at)}.")
        else:
            says = f"; {schedd.collector_says}" if schedd.collector_says else ""
            said.append(f"It has been silent since {exact(schedd.unreachable_since)} ({self.silent_seconds:.0f} s){says}.")
        return said + [f"{row.request_name}: {row.why}; {', '.join(row.directory.words())}." for row in self.affected]


def losses_of(schedd: Schedd) -> Losses:
    """The evidence as it is now; reads rows and DAG directories, asks no schedd."""
    now, window = clock.now(), conf().schedd_suspicion_seconds
    silent = (now - schedd.unreachable_since).total_seconds() if schedd.unreachable_since else None
    # READY with an intent: it may have been submitted; only the schedd could tell
    here = Q(status__in=IN_QUEUE) | Q(status=DAGStatus.READY, submit_intent_at__isnull=False)
    rows = DAG.objects.filter(here, schedd=schedd, lost_confirmed_at__isnull=True).select_related("schedd", "workflow")
    seen = [(dag, directory_evidence(dag)) for dag in rows.defer("workflow__psets", "workflow__spec").order_by("created_at")]
    # one DAGMan that lives shows that the machine lives, and the others with it
    gone = silent is not None and silent > window and not any(_writes(found) for _, found in seen)
    dags = tuple(_judged(dag, found, gone) for dag, found in seen)
    changes = tuple(QueueChange.objects.filter(schedd=schedd)[:_CHANGES])
    return Losses(schedd, silent, changes, dags, _refusal(schedd, silent, dags, now))


def schedd_confirm_lost(*, schedd: Schedd, actor: str, reason: str) -> Losses:
    """Take an operator's confirmation that these DAGs are lost; the life cycle sweeps, ends them, and holds their requests.

    Asked again within the window, with nothing new to confirm, it was done already.

    Raises:
        InvalidTransition: there is no evidence; it says what there is.
    """
    found = losses_of(schedd)
    evidence = {"words": found.words(), "dags": [str(row.dag.pk) for row in found.affected]}
    with audited(actor=actor, action="schedd_confirm_lost", target=schedd.name, target_type="schedd", reason=reason, **evidence):
        if found.refusal:
            if _confirmed_just_now(schedd):
                return found
            raise InvalidTransition(found.refusal)
        for row in found.affected:
            known = {"why": row.why, "directory": row.directory.as_json(), "queue_birthdate": schedd.job_queue_birthdate}
            if lost_confirm(row.dag, actor=actor, reason=reason, evidence=known):
                nudge(EVALUATE_REQUEST, str(row.dag.workflow.request.pk))
    return found


def _judged(dag: DAG, found: DirectoryEvidence, gone: bool) -> LostDag:
    name = str(dag.workflow.request_id)
    if dag.suspected_at is not None:
        return LostDag(dag, name, True, missing_words(dag), found)
    job = f"DAGMan job {dag.dagman_cluster_id}" if dag.dagman_cluster_id else f"a submission with fence {dag.fence}"
    if gone:
        return LostDag(dag, name, True, f"{job}, seen last at {exact(dag.observed_at)}", found)
    if dag.missing_since is not None:
        return LostDag(dag, name, False, f"{job} missing since {exact(dag.missing_since)}; how it ended is looked for", found)
    return LostDag(dag, name, False, f"{job}, seen last at {exact(dag.observed_at)}; nothing speaks for its loss", found)


def _writes(found: DirectoryEvidence) -> bool:
    window = timedelta(seconds=conf().schedd_suspicion_seconds)
    return found.written_at is not None and clock.now() - found.written_at < window


def _refusal(schedd: Schedd, silent: float | None, dags: Sequence[LostDag], now: datetime) -> str:
    if any(row.affected for row in dags):
        return ""
    window = conf().schedd_suspicion_seconds
    if not dags:
        return f"No DAG at {schedd.name} could be lost."
    if silent is not None and silent <= window:
        return f"{schedd.name} has been silent for {silent:.0f} s only; unreachable is not lost before {window} s."
    if silent is not None:
        return f"{schedd.name} is silent, but its DAGMans still write into their directories: it runs."
    missing = [row for row in dags if row.dag.missing_since is not None]
    if missing:
        told = f"{counted(len(missing), 'DAG')} missing at {schedd.name}; how they ended is looked for"
        return f"{told} until nothing has been found for {window} s."
    born = birthdate_text(schedd.job_queue_birthdate)
    return f"{schedd.name} answers, its queue is the one born {born}, and {counted(len(dags), 'DAG')} are in it."


def _confirmed_just_now(schedd: Schedd) -> bool:
    since = clock.now() - timedelta(seconds=conf().schedd_suspicion_seconds)
    return DAG.objects.filter(schedd=schedd, lost_confirmed_at__gte=since).exclude(lost_confirmation={}).exists()
