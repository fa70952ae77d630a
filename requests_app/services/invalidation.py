"""Taking a request's outputs back: the list of what there is, and the operation that does it (error-handling 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from django.db.models import F

from outputs_app.effects import invalidation
from outputs_app.models import DatasetState, EffectKind, OutputDataset
from requests_app.alerts import report_broken
from requests_app.lease import ACTOR
from requests_app.models import TERMINAL, CleanupPolicy, InputFile, Request, RequestStatus, Workflow
from requests_app.selectors.versions import replaced_before, requests_before
from requests_app.services.common import recorded_operation, rows_read, workflow_known
from wms2.actions import applies
from wms2.conf import conf
from wms2.errors import FieldRefused, InvalidTransition
from wms2.runtime import clock
from wms2.runtime.locks import Fenced
from wms2.runtime.passes import row_by_itself
from wms2.web.formatting import counted

S = RequestStatus
log = structlog.get_logger(__name__)
#: Ends after which the outputs are not used, as long as they are not superseded.
_ENDED = (S.FAILED, S.ABORTED)
_GONE = (*_ENDED, S.CLEANED)


def manifest_of(request: Request) -> dict[str, Any]:
    """The manifest as it would be written now.

    Raises:
        InvalidTransition: the request never had a workflow.
    """
    return invalidation.invalidation_manifest(request_name=request.request_name, workflow_id=_workflow(request).pk)


def request_invalidate(*, request: Request, actor: str, reason: str) -> int:
    """Delete the rules and invalidate the outputs of a failed, aborted or superseded request; returns the number of datasets."""
    with recorded_operation(request, actor, "request_invalidate", reason):
        applies(request, invalidation_refused(request))
        return _invalidate(request)


def invalidation_refused(request: Request) -> str:
    """Why its outputs may not be taken back; empty if they may."""
    if workflow_known(request) is None:
        return "It has no outputs."
    if request.derived_by and Request.objects.filter(derived_from=request).exclude(status__in=_GONE).exists():
        return f"{request.derived_by} was derived from it and makes only what it has not: fail or abort that first."
    if request.status in _ENDED:
        return ""
    has_newer = rows_read(request).get("next_versions") != []
    if has_newer and replaced_before({request.request_name}, clock.now()):
        return ""
    return f"It is {request.get_status_display()} and nothing has replaced its outputs."


def request_invalidate_files(
    *,
    request: Request,
    actor: str,
    reason: str,
    files: Sequence[str] = (),
    blocks: Sequence[str] = (),
    accept_children: bool = False,
) -> int:
    """Take single files, or whole blocks, of a request at its end back; returns how many files that are valid until now.

    Raises:
        InvalidTransition: it is not at an end, its outputs are taken back as a whole, or something has been made of the files
            and that is not accepted.
        FieldRefused: a name is not one of its outputs, or of a block that is not registered as a whole.
    """
    with recorded_operation(request, actor, "request_invalidate_files", reason, files=list(files), blocks=list(blocks)):
        applies(request, files_refused(request))
        if not files and not blocks:
            raise FieldRefused("files", "name at least one file or block")
        workflow = _workflow(request)
        parts = invalidation.parts_of(workflow_id=workflow.pk, lfns=files, blocks=blocks)
        datasets = OutputDataset.objects.filter(pk__in={file.dataset_id for file in parts.files}).values_list("name", flat=True)
        read = InputFile.objects.filter(workflow__input_dataset__in=list(datasets), lfn__in=[file.lfn for file in parts.files])
        readers = sorted(set(read.values_list("workflow__request__request_name", flat=True)))
        children = [*invalidation.children_of(workflow_id=workflow.pk, parts=parts), *readers]
        if children and not accept_children:
            raise FieldRefused(
                "accept_children",
                f"{counted(len(children), 'file or request', 'files or requests')} rest on these, e.g. {children[0]}",
            )
        invalidation.parts_ask(parts=parts, request_id=request.pk, request_epoch=request.epoch)
        return len(parts.files)


def files_refused(request: Request) -> str:
    """Why no single file or block of it may be taken back; empty if that depends on which."""
    if workflow_known(request) is None:
        return "It has no outputs."
    if request.status not in (*TERMINAL, S.COMPLETED):
        return f"It is {request.get_status_display()}: what it still does may need them; hold and fail it, or wait for its end."
    if invalidation.invalidation_asked(request_id=request.pk, request_epoch=request.epoch):
        return "All its outputs are being taken back."
    return ""


def previous_superseded(request: Request) -> None:
    """A new version has completed: the outputs of all it replaces are superseded, and taken back where the policy of the version
    that followed them says so (error-handling 4.3).

    In the transaction that completes ``request``.
    """
    newer = request
    for old in requests_before(request):
        workflow = Workflow.objects.filter(request=old).first()
        if workflow is not None:
            workflow.output_datasets.filter(state=DatasetState.ACTIVE).update(state=DatasetState.SUPERSEDED)
            if newer.cleanup_policy == CleanupPolicy.IMMEDIATE_CLEANUP:
                _invalidate(old)
        newer = old


def superseded_take_back(fenced: Fenced) -> int:
    """Take back the outputs that a completed version has replaced for ``superseded_grace_days`` (spec 15, question 10).

    Each cycle; returns for how many requests it was asked. What was asked for before is not asked again.
    """
    days = conf().superseded_grace_days
    if not days:
        return 0
    rows = Request.objects.filter(workflow__output_datasets__state=DatasetState.SUPERSEDED)
    waiting = rows.exclude(effects__kind=EffectKind.RUCIO_RELEASE).distinct()
    asked = 0
    for name in replaced_before(set(waiting.values_list("request_name", flat=True)), clock.now() - timedelta(days=days)):
        with row_by_itself("replaced outputs", name, partial(report_broken, request_name=name)), fenced():
            request = Request.objects.get(request_name=name)
            try:
                request_invalidate(request=request, actor=ACTOR, reason=f"its outputs were replaced {days:g} days ago")
                asked += 1
            except InvalidTransition as error:  # audited
                log.error("replaced outputs not taken back", request_name=request.request_name, error=str(error))
    return asked


def _invalidate(request: Request) -> int:
    """With a new epoch, once: what was still to be registered of it is registered no more."""
    if not invalidation.invalidation_asked(request_id=request.pk, request_epoch=request.epoch):
        epoch_raise(request)
    return invalidation.invalidation_ask(request_id=request.pk, request_epoch=request.epoch, workflow_id=_workflow(request).pk)


def epoch_raise(request: Request) -> None:
    """Nothing that was asked for before is registered or protected any more; what ReqMgr2 is still to receive stays true. In its
    caller's transaction."""
    Request.objects.filter(pk=request.pk).update(epoch=F("epoch") + 1)
    request.refresh_from_db(fields=["epoch"])
    invalidation.former_end(request_id=request.pk, request_epoch=request.epoch)


def _workflow(request: Request) -> Workflow:
    workflow = Workflow.objects.filter(request=request).first()
    if workflow is None:
        raise InvalidTransition(f"{request.request_name} has no workflow, so it has no outputs")
    return workflow
