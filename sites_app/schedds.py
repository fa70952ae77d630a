"""Whether a schedd gets new DAGs, and what was last heard of it. Running DAGs are watched in every state."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from django.db import transaction

from sites_app.models import QueueChange, Schedd, ScheddState
from wms2.adapters import factory
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.types import ScheddAd

log = structlog.get_logger(__name__)


def adapter(schedd: Schedd) -> HtcondorAdapter:
    """How the schedd is asked: by its pool's collector, with its pool's credentials. Reads no row."""
    return factory.htcondor(schedd.name, schedd.pool.collector, schedd.pool.token_dir)


def state_refused(schedd: Schedd, state: ScheddState) -> str:
    """Why the schedd cannot be given this state; empty if it can."""
    if schedd.state == state:
        return f"It is {state.label.lower()} already."
    if state is ScheddState.ENABLED and schedd.onboarded_at is None:
        return f"Its checks have not passed ({schedd.onboarding or 'nobody has asked for them'}); ask for them with Check."
    return ""


def schedd_answered(*, schedd: Schedd, ad: ScheddAd, dagmans_running: int, now: datetime) -> QueueChange | None:
    """Write down an answer. Another birthdate of its queue than before becomes a row of evidence, which is returned."""
    with transaction.atomic():
        row = Schedd.objects.select_for_update(no_key=True, of=("self",)).get(pk=schedd.pk)
        old, new = row.job_queue_birthdate, ad.job_queue_birthdate_seconds
        change = None
        if old is not None and new is not None and old != new:
            change = QueueChange.objects.create(
                schedd=row, old_birthdate=old, new_birthdate=new, old_answered_at=row.last_answer_at,
                dagmans_before=row.dagmans_running, seen_at=now,
            )  # fmt: skip
            log.error("schedd has another job queue", schedd=row.name, old_birthdate=old, new_birthdate=new)
        Schedd.objects.filter(pk=row.pk).update(
            asked_at=now,
            last_answer_at=now,
            unreachable_since=None,
            last_error="",
            collector_says="",
            version=ad.version,
            job_queue_birthdate=old if new is None else new,
            dagmans_running=dagmans_running,
        )
    return change


def schedd_silent(*, schedd: Schedd, error: str, collector_says: str, now: datetime) -> None:
    """Write down that it did not answer; that concludes nothing."""
    Schedd.objects.filter(pk=schedd.pk).update(
        asked_at=now, last_error=error, collector_says=collector_says[:300], unreachable_since=schedd.unreachable_since or now
    )


def birthdate_text(seconds: int | None) -> str:
    """A queue's birthdate as a moment."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC" if seconds is not None else "never told"
