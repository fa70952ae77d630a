"""Reads of dags_app."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from dags_app.models import DAG, LIVE_DAG


def dag_live(workflow_id: uuid.UUID) -> DAG | None:
    """The workflow's one live DAG."""
    return DAG.objects.select_related("schedd", "workflow").filter(workflow_id=workflow_id, status__in=LIVE_DAG).first()


def dag_id_live(request_id: uuid.UUID) -> str:
    """Of the request's one live DAG, for logs; empty without one."""
    key = DAG.objects.filter(workflow__request__id=request_id, status__in=LIVE_DAG).values_list("pk", flat=True).first()
    return str(key or "")


def dag_last(workflow_id: uuid.UUID) -> DAG | None:
    """The newest DAG, live or ended; the workflow's PSets stay in the database."""
    rows = DAG.objects.select_related("schedd", "workflow").defer("workflow__psets")
    return rows.filter(workflow_id=workflow_id).order_by("-created_at", "-fence").first()


def dags_shown() -> QuerySet[DAG]:
    """DAGs with what a page shows of them; the workflow's large columns stay in the database."""
    return DAG.objects.select_related("workflow", "round").only(
        *(field.name for field in DAG._meta.concrete_fields),
        "workflow__id",
        "workflow__request_id",
        "round__id",
        "round__index",
    )
