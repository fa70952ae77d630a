"""Intake: a ReqMgr2 document becomes a checked, typed request, or is refused with everything that is wrong in it.

Pure functions, no Django and no service: :func:`parse` reads what the document alone says, :func:`config_ids` names the
ConfigCache documents it needs, :func:`complete` makes the ``WorkflowSpec`` of both. :func:`prepare_plan_spec` is the short way of
``plan_request``. Spec 3.1.1, 5.2; docs/design/services.md, ReqMgr2.
"""

from requests_app.intake.documents import merge_document, with_fields, with_input
from requests_app.intake.draft import Draft, Identity
from requests_app.intake.outputs import complete, config_ids, outputs_of_next
from requests_app.intake.parse import parse
from requests_app.intake.plan import prepare_plan_spec
from requests_app.intake.resubmission import Resubmission, read_resubmission
