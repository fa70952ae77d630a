"""The typed specification in ``Workflow.spec`` and ``Request.prepared``: one adapter in, one out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from dags_app.planning.specs import WorkflowSpec
from requests_app.models import Workflow


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a document comes to with ConfigCache's answers: all that a workflow is made of."""

    spec: WorkflowSpec
    psets: dict[str, str]  # step name -> the PSet's text


_ADAPTER = TypeAdapter(WorkflowSpec)
PREPARED = TypeAdapter(Prepared)


def spec_of(workflow: Workflow) -> WorkflowSpec:
    """The specification of a workflow row; read once for each row that is in memory, whose ``spec`` is never changed in place."""
    cached: tuple[dict[str, Any], WorkflowSpec] | None = workflow.__dict__.get("_typed_spec")
    if cached is None or cached[0] is not workflow.spec:
        workflow.__dict__["_typed_spec"] = cached = workflow.spec, _ADAPTER.validate_python(workflow.spec)
    return cached[1]


def spec_to_json(spec: WorkflowSpec) -> dict[str, Any]:
    """The form kept in the row."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(spec, mode="json")
    return dumped
