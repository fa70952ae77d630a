"""Reads of dags_app."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast, Coalesce, Greatest

from dags_app.models import DAG, IN_QUEUE, LIVE_DAG, WorkUnit, WorkUnitState
from sites_app.models import Schedd, ScheddState
from wms2.runtime.columns import rows_with


class NumberAt(Func):
    """In SQL the number at a path of a JSON column, ``KeyTransform``'s; NULL where something else was written."""

    template = "(jsonb_path_query_first(%(expressions)s, '$ ? (@.type() == \"number\")'))::double precision"
    output_field = FloatField()


#: DAGs that the last answer of their schedd contained.
THERE = Q(status__in=IN_QUEUE, observed_at__isnull=False, missing_since__isnull=True, unanswered_since__isnull=True)


def seen_at() -> Case:
    """``DAG.seen_at`` in SQL."""
    return Case(When(THERE, then=Greatest("observed_at", "schedd__last_answer_at")), default=F("observed_at"))


def failed_nodes() -> Any:
    """``counts.nodes_failed`` in SQL."""
    running = Case(When(status__in=IN_QUEUE, then=_whole("observed__inner_failed")), default=Value(0))
    return running + _whole("failed_units__failed")


def _whole(key: str) -> Coalesce:
    column, _, name = key.partition("__")
    return Coalesce(Cast(NumberAt(KeyTransform(name, column)), IntegerField()), Value(0))


def dag_live(workflow_id: uuid.UUID) -> DAG | None:
    """The workflow's one live DAG."""
    return DAG.objects.select_related("schedd__pool").filter(workflow_id=workflow_id, status__in=LIVE_DAG).first()


def dag_last(workflow_id: uuid.UUID) -> DAG | None:
    """The newest DAG, live or ended, with its schedd."""
    rows = DAG.objects.select_related("schedd")
    return rows.filter(workflow_id=workflow_id).order_by("-created_at", "-fence").first()


def dags_shown() -> QuerySet[DAG]:
    """DAGs with what a page shows of them; the workflow's large columns stay in the database."""
    return rows_with(DAG, "workflow__request_id", "round__index", "schedd__last_answer_at")


def schedds_counted() -> QuerySet[Any]:
    """Schedds with ``live_dags``, ``suspected_dags`` of these, and ``in_use``; over the index of live DAGs, whatever number has
    ended."""
    live = DAG.objects.filter(schedd=OuterRef("pk"), status__in=LIVE_DAG)
    return Schedd.objects.annotate(
        live_dags=_number(live),
        suspected_dags=_number(live.filter(suspected_at__isnull=False)),
        in_use=ExpressionWrapper(schedd_in_use(), output_field=BooleanField()),
    )


def schedd_in_use() -> Q:
    """Schedds that get DAGs or have live ones: those that are asked in every cycle, and whose silence matters."""
    live = DAG.objects.filter(schedd=OuterRef("pk"), status__in=LIVE_DAG)  # over its partial index: DAGs that ever ended are many
    return Q(state__in=(ScheddState.ENABLED, ScheddState.DRAINING)) | Q(Exists(live))


def units_done_at(site: str, not_of: Collection[uuid.UUID], since: datetime) -> int:
    """Work units that were done at a site since then, of other workflows than these."""
    done = WorkUnit.objects.filter(site=site, state=WorkUnitState.DONE, done_at__gte=since)
    return done.exclude(workflow__in=not_of).count()


def _number(dags: QuerySet[DAG]) -> Coalesce:
    counted = dags.order_by().values("schedd").annotate(number=Count("*")).values("number")
    return Coalesce(Subquery(counted), 0)
