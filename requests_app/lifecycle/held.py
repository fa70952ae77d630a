"""HELD: nothing goes on, but what DAGMan has done is still accounted for (docs/design/model.md, A unit is done).

A manifest that comes late then counts, whichever way the request is released.
"""

from __future__ import annotations

from requests_app.alerts import alert
from requests_app.lease import Evaluation
from requests_app.work.accounting import account_again
from wms2.errors import LedgerViolation


def handle_held(evaluation: Evaluation) -> None:
    """Look again at units that are done but unaccounted; a violation is told, the request is held already."""
    if not hasattr(evaluation.request, "workflow"):
        return
    try:
        account_again(evaluation)
    except LedgerViolation as error:
        alert(evaluation.request, "ledger_violation", str(error))
