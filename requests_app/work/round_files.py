"""What a request's directory says to a verb, read before its transaction: a file system that hangs must keep no row locked.

Rows are asked again inside the transaction; what was read is refused there when it is of another round or DAG by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from dags_app.models import DAG, LIVE_DAG
from dags_app.services.dag_files import RescueLeft, rescue_left, rescue_obstacle
from dags_app.services.failures import BadInput
from requests_app.models import Request, RequestStatus, Round, Workflow
from requests_app.work.exclusions import bad_input_read
from requests_app.work.rounds import round_open
from wms2.errors import StaleState


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """Of the round that was open when it was read, if any."""

    round_id: object = None
    named: BadInput = field(default_factory=dict)
    rescues: Mapping[uuid.UUID, RescueLeft] = field(default_factory=dict)

    def bad_input(self, round_: Round) -> BadInput:
        """What nodes gave up over, see ``bad_input_read``.

        Raises:
            StaleState: another round was open when it was read.
        """
        if round_.pk != self.round_id:
            raise StaleState(f"round {round_.index} was begun meanwhile; try again")
        return self.named

    def rescue_obstacle(self, dag: DAG) -> str:
        """Why the DAG cannot be rescued; empty if it can.

        Raises:
            StaleState: the DAG was not yet there when it was read.
        """
        if dag.pk not in self.rescues:
            raise StaleState(f"DAG {dag.pk} was submitted meanwhile; try again")
        return rescue_obstacle(dag, self.rescues[dag.pk])


def round_files_read(request: Request) -> RoundFiles:
    """Of the open round."""
    workflow = Workflow.objects.filter(request=request).first()
    round_ = round_open(workflow) if workflow else None
    if round_ is None:
        return RoundFiles()
    looked_at = {dag.pk: dag for dag in (dag_run_last(round_), dag_fenced_last(round_)) if dag is not None}
    return RoundFiles(round_.pk, bad_input_read(round_), {key: rescue_left(dag) for key, dag in looked_at.items()})


def round_files_at_rest(request: Request) -> RoundFiles:
    """The same; nothing while a DAG may run, when verbs only leave what is wanted and need not wait for a file system."""
    status = Request.objects.filter(pk=request.pk).values_list("status", flat=True).get()
    live = DAG.objects.filter(workflow__request=request, status__in=LIVE_DAG)
    runs = status in (RequestStatus.ACTIVE, RequestStatus.STOPPING) or live.exists()
    return RoundFiles() if runs else round_files_read(request)


def dag_run_last(round_: Round) -> DAG | None:
    """The round's last DAG that was submitted."""
    return DAG.objects.filter(round=round_, submitted_at__isnull=False).order_by("-fence").first()


def dag_fenced_last(round_: Round) -> DAG | None:
    """The round's newest submission, recorded or not."""
    return DAG.objects.filter(round=round_, fence__gt=0).order_by("-fence").first()
