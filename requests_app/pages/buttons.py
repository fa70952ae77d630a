"""Buttons on a request's page: the verbs that apply to it and its DAG now, each leading to the admin's page of confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Model

from dags_app.models import DAG
from requests_app.models import Request
from wms2.adapters.types import JobStatus
from wms2.admin.verbs import verb_url
from wms2.verbs import buttons_of


@dataclass(frozen=True, slots=True)
class VerbLink:
    """One button."""

    label: str
    url: str
    dangerous: bool


def verb_links(request: Request) -> list[VerbLink]:
    """In the order of their registration."""
    return _links(request, {verb.name for verb in buttons_of(Request)}, back=request.get_absolute_url())


def dag_verb_links(dag: DAG, back: str) -> list[VerbLink]:
    """Hold, or release when it is on hold. What becomes of the request is among the request's own verbs."""
    held = dag.observed.get("job_status") == JobStatus.HELD
    return _links(dag, {"release" if held else "hold"}, back)


def _links(row: Model, names: set[str], back: str) -> list[VerbLink]:
    model = type(row)
    verbs = [verb for verb in buttons_of(model) if verb.name in names and not verb.refused(row)]
    return [VerbLink(verb.label, verb_url(model, verb.name, [row.pk], back), verb.dangerous) for verb in verbs]
