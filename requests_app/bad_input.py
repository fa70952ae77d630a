"""Input files that jobs gave up over are excluded when their round is closed (error-handling 5.2), as POST scripts name them.

Only files of units that were given up, and of which nobody else has processed or claimed a part: what is done stays done.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from dags_app.models import WorkUnit
from dags_app.planning.specs import ExcludedFile
from dags_app.services.failures import bad_input_of
from requests_app.models import Event, InputFile, Round
from requests_app.work_left import LeftOut, record_left_out
from requests_app.workflow_spec import spec_of

log = structlog.get_logger(__name__)


def bad_input_exclude(*, round_: Round, units: Sequence[WorkUnit]) -> int:
    """Exclude what the POST scripts of these units name; in the caller's transaction, after their claims have ended.

    Returns how many files. A request without input excludes nothing.
    """
    workflow = round_.workflow
    spec = spec_of(workflow)
    directory = round_.dags.order_by("created_at").values_list("submit_dir", flat=True).first()
    if spec.input is None or directory is None:
        return 0
    named = bad_input_of(directory, {unit.name for unit in units})
    rows = InputFile.objects.filter(workflow=workflow, lfn__in=named, excluded_at__isnull=True).exclude(claims__live=True)
    files = [ExcludedFile(lfn, named[lfn]) for lfn in rows.order_by("lfn").values_list("lfn", flat=True)]
    if not files:
        return 0
    record_left_out(workflow, spec, LeftOut(files=files))
    told = {"files": [file.lfn for file in files[:50]], "number": len(files), "round": round_.index}
    Event.objects.create(request=workflow.request, kind="input.excluded", data=told)
    log.warning("input files excluded", request_name=workflow.request_id, files=len(files), first=files[0].lfn)
    return len(files)
