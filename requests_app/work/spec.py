"""The typed specification in ``Workflow.spec``: one adapter in, one out."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from dags_app.planning.specs import WorkflowSpec
from requests_app.models import Workflow

_ADAPTER = TypeAdapter(WorkflowSpec)


def spec_of(workflow: Workflow) -> WorkflowSpec:
    """The specification of a workflow row."""
    return _ADAPTER.validate_python(workflow.spec)


def spec_to_json(spec: WorkflowSpec) -> dict[str, Any]:
    """The form kept in the row."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(spec, mode="json")
    return dumped
