"""What operators do to production steps (spec 6.2.1): changed until the request is over, in its row and in the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from requests_app.models import Request, Workflow
from requests_app.services.acting import acting, applies
from requests_app.services.verbs import priority_refused
from requests_app.work.ledger import ledger_of
from requests_app.work.production_steps import share_done, steps_passed, steps_read, steps_refused
from wms2.errors import InvalidTransition


def request_set_steps(
    *, request: Request, steps: Sequence[Mapping[str, Any]], actor: str, reason: str, confirm: bool = False
) -> None:
    """Replace the steps that are still to come; an empty list takes them away.

    Args:
        confirm: a step that is passed already is meant: it stops the running DAG at once.

    Raises:
        InvalidTransition: a step is wrong, raises the priority, or is passed already and not confirmed; or the request is urgent
            or over.
    """
    wanted = steps_read(steps)
    with acting(request, actor, "request_set_steps", reason, steps=[step.model_dump() for step in wanted]):
        applies(request, priority_refused)
        workflow = Workflow.objects.filter(request=request).first()
        share = share_done(ledger_of(workflow, whole=False)) if workflow is not None else 0.0
        refused = steps_refused(wanted, priority=request.priority, urgent=request.urgent)
        if refused:
            raise InvalidTransition(f"production_steps: {refused}")
        if steps_passed(wanted, share) and not confirm:
            raise InvalidTransition(
                f"production_steps: {share:.1%} are done, so the step at {wanted[0].fraction:.1%} is passed already and would"
                " stop the DAG at once; send confirm if that is meant"
            )
        request.production_steps = [step.model_dump() for step in wanted]
        Request.objects.filter(pk=request.pk).update(production_steps=request.production_steps)
