"""Which DAGs have moved: the files that DAGMan and the POST scripts add to, looked at every few seconds for next to nothing.

The fast way from the pool to the life cycle; the slow and certain one is the schedd's answer (``watch``). Nothing is concluded
here: who is woken reads the files. Kept in memory only: after a start every DAG counts as moved, once.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from django.db.models import Count, Max

from dags_app.models import DAG, IN_QUEUE
from dags_app.payload.contract.layout import FAILURES_FILE, JOBSTATE_LOG
from dags_app.services.dag_files import lines_from

log = structlog.get_logger(__name__)
#: A look that lasts longer goes on by itself, and the next one reports what it has found.
PATIENCE_SECONDS = 1.0
#: Read at once of what a log has grown by.
_PORTION_BYTES = 1 << 20
#: In a line of the job-state log: a unit has ended. What else is written there happens while units begin.
_ENDS = (b" JOB_SUCCESS ", b" JOB_FAILURE ", b" PRE_SCRIPT_FAILURE ")


@dataclass(slots=True)
class _Watched:
    """One live DAG, and how much of its files was there at the last look; None before the first."""

    request_id: uuid.UUID
    jobstate: Path
    failures: Path
    read: tuple[int, int] | None = None

    def check(self) -> str:
        """Why it has moved; empty if it has not.

        Raises:
            OSError: its files are out of reach.
        """
        before = self.read or (0, 0)
        lengths = _length(self.jobstate, before[0]), _length(self.failures, before[1])
        if self.read is None:
            self.read = lengths
            return "first look"
        if lengths == before:
            return ""
        start = before[0] if lengths[0] >= before[0] else 0
        lines = lines_from(self.jobstate, start, _PORTION_BYTES) if lengths[0] != before[0] else b""
        self.read = start + len(lines), lengths[1]
        if any(end in lines for end in _ENDS):
            return "unit ended"
        return "attempt failed" if lengths[1] != before[1] else ""


def _length(path: Path, before: int) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        if before:
            raise
        return 0  # nothing has been written yet


@dataclass(slots=True)
class DagActivity:
    """One process's looks at the DAGs in the queue."""

    _watched: dict[uuid.UUID, _Watched] = field(default_factory=dict)
    _set: object = None
    _found: dict[uuid.UUID, str] = field(default_factory=dict)
    _looking: threading.Thread | None = None
    _out_of_reach: set[Path] = field(default_factory=set)

    def check(self) -> list[tuple[uuid.UUID, str]]:
        """Requests whose DAGs have moved since the last look, with why.

        A file system that hangs holds up a thread and not the caller; until it answers nothing has moved.
        """
        if self._looking is not None and self._looking.is_alive():
            return []
        self._know()
        # not of an executor: at the end of the process one that hangs is not waited for
        self._looking = threading.Thread(target=self._check, name="moved", daemon=True)
        self._looking.start()
        self._looking.join(PATIENCE_SECONDS)
        if self._looking.is_alive():
            log.warning("a file system does not answer; DAGs are known by their schedds alone until it does")
            return []
        found, self._found = self._found, {}
        return list(found.items())

    def _know(self) -> None:
        """The DAGs in the queue are read again when there are others: one has come, or one has gone."""
        rows = DAG.objects.filter(status__in=IN_QUEUE)
        now = rows.aggregate(number=Count("pk"), newest=Max("submitted_at"))
        if now == self._set:
            return
        self._set, known, self._watched = now, self._watched, {}
        for pk, request_id, place in rows.values_list("pk", "workflow__request__id", "submit_dir"):
            self._watched[pk] = known.get(pk) or _Watched(request_id, Path(place, JOBSTATE_LOG), Path(place, FAILURES_FILE))

    def _check(self) -> None:
        for dag in list(self._watched.values()):
            place = dag.jobstate.parent
            try:
                why = dag.check()
            except OSError as error:
                if place not in self._out_of_reach:
                    self._out_of_reach.add(place)
                    log.warning("what DAGMan writes is out of reach", directory=str(place), error=str(error))
                continue
            self._out_of_reach.discard(place)
            if why:
                self._found[dag.request_id] = why
