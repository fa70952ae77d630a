"""Where input files are: read from Rucio at import, and again until the work is planned (ADR 0011).

Owns ``rses``, ``parent_rses``, ``located_at`` and what "waiting" means: no site that the request may use has the file as the
catalogue is now. Such a file is planned later; it is never excluded for that. ``Unreadable`` is what jobs said of files that they
could not read, where and when (ADR 0011); what they said before an operator let a file in again (``restored_at``) does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

import structlog
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from dags_app.models import UnreadableInput
from dags_app.planning import lumis
from dags_app.planning.selection import EMPTY_SITE_LISTS, SiteChoice
from dags_app.planning.specs import WaitingFile, WorkflowSpec
from dags_app.services.failures import unread_waves
from requests_app.models import InputFile, Workflow
from requests_app.work.ledger import files_left, files_with_work
from requests_app.work.lumi_account import lumis_left
from sites_app.selectors import sites_by_rse
from wms2.adapters import factory
from wms2.errors import PlanningRefused
from wms2.runtime import clock
from wms2.runtime.in_force import in_force
from wms2.runtime.locks import Fenced

#: Locations of input files that are older are read again before a round is planned.
INPUT_LOCATIONS_SECONDS = 3600.0

log = structlog.get_logger(__name__)
_CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Location:
    """RSEs of a file, and of its parents: one list for each different set of places."""

    rses: tuple[str, ...]
    parent_rses: tuple[tuple[str, ...], ...]


class InputRow(NamedTuple):
    """What planning reads of an InputFile."""

    pk: int
    lfn: str
    size_bytes: int
    events: int
    lumis: Mapping[str, Sequence[Sequence[int]]]
    restored_at: datetime | None
    parents: tuple[str, ...]
    rses: tuple[str, ...]
    parent_rses: tuple[tuple[str, ...], ...]
    odd_lumis: tuple[tuple[int, int, int, int], ...]


class Places:
    """Sites of input files by this request's lists and CRIC's mapping, as both are when it is made."""

    def __init__(self, workflow: Workflow, spec: WorkflowSpec) -> None:
        self._choice = SiteChoice(spec)
        self._sites = sites_by_rse()
        self._unreadable = Unreadable(workflow)
        self._now = clock.now()
        self._waves = cache(unread_waves)
        self._known: dict[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], frozenset[str] | str] = {}
        self.anywhere = spec.trust_sitelists

    def of(self, row: InputFile | InputRow) -> frozenset[str] | WaitingFile:
        """Where jobs can read the file, with its parents; with TrustSitelists they are read from wherever they are.

        Raises:
            PlanningRefused: the site lists leave no site for any file.
        """
        sites = self._catalogued(row.rses, row.parent_rses)
        if isinstance(sites, str):
            return WaitingFile(row.lfn, sites)
        failed = self._unreadable.at(row) if row.lfn in self._unreadable else {}
        if not failed:
            return sites
        others = frozenset[str]() if self.anywhere else sites.difference(failed)
        if others and self._choice.problem(others) is None:
            return others
        again = self._unreadable.again_at(row)
        if again <= self._now:
            return sites
        why = f"it could not be read at {', '.join(sorted(failed))}" + ("" if self.anywhere else ", and is nowhere else")
        return WaitingFile(row.lfn, f"{why}; tried again at {again:%Y-%m-%d %H:%M} UTC")

    def _catalogued(self, rses: Sequence[str], parent_rses: Sequence[Sequence[str]]) -> frozenset[str] | str:
        """As the catalogues have it, or why it is nowhere. Worked out once for each set of places: many files share it."""
        key = tuple(rses), tuple(map(tuple, parent_rses))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._together(*key)
        return found

    def _together(self, rses: Sequence[str], parent_rses: Sequence[Sequence[str]]) -> frozenset[str] | str:
        sites = self._of_rses(rses)
        problem = self._choice.problem(sites)
        if problem == EMPTY_SITE_LISTS:
            raise PlanningRefused(problem)
        if problem is not None:
            return problem
        if parent_rses and not self.anywhere:
            together = sites.intersection(*(self._of_rses(each) for each in parent_rses))
            if self._choice.problem(together) is not None:
                return f"no site has both the file and its parents; the file is at {', '.join(sorted(sites))}"
            sites = together
        return sites

    def lost(self, row: InputFile) -> str:
        """What speaks for the loss of the file itself, in words; empty while it may be a site's storage (docs/adr/0011).

        All sites where jobs may read it, and these are two that looked into their own storage; or in two submissions far enough
        apart, when copies elsewhere were looked for in between. With TrustSitelists sites read from one storage, wherever it
        is: only time shows it. Where files fail in a wave nothing does.
        """
        found = self._unreadable.at(row)
        if not found or self._waves().carries(row.workflow_id, found.keys()):
            return ""
        if self.anywhere:
            lost = self._unreadable.twice(row, looked_at=self._now)
        else:
            catalogued = self._catalogued(row.rses, row.parent_rses)
            known = frozenset() if isinstance(catalogued, str) else self._choice.sites(catalogued)
            two = len(self._unreadable.sure_at(row)) >= 2
            lost = known <= found.keys() and (two or (bool(known) and self._unreadable.twice(row, looked_at=row.located_at)))
        return self._unreadable.words(row) if lost else ""

    def read(self, block: str, parents: Mapping[str, Sequence[str]]) -> dict[str, Location]:
        """Ask Rucio where the files of a block are; file by file where the RSEs with the whole block will not do.

        Args:
            parents: LFN -> its parents, for each file that is asked for.
        """
        rucio = factory.rucio()
        whole = {rse for rse, complete in rucio.block_locations([block]).get(block, {}).items() if complete}
        named = sorted({parent for each in parents.values() for parent in each})
        places = rucio.file_replicas(named) if named else {}
        beside = {lfn: tuple(sorted({tuple(sorted(places[each])) for each in mine})) for lfn, mine in parents.items()}
        sites = self._of_rses(whole)
        common = {rses: Location(tuple(sorted(whole)), rses) for rses in set(beside.values())}
        good = {rses for rses in common if self._will_do(sites, rses)}
        alone = (
            [lfn for lfn in sorted(parents) if beside[lfn] not in good or lfn in self._unreadable] if not self.anywhere else []
        )
        found = rucio.file_replicas(alone) if alone else {}
        located = {lfn: common[rses] for lfn, rses in beside.items()}
        return located | {lfn: Location(tuple(sorted({*whole, *found.get(lfn, ())})), beside[lfn]) for lfn in alone}

    def _will_do(self, sites: frozenset[str], parent_rses: Iterable[Sequence[str]]) -> bool:
        """Whether jobs can read files at ``sites``, where their whole block is, with parents that are there."""
        return self._choice.problem(sites.intersection(*(self._of_rses(rses) for rses in parent_rses))) is None

    def _of_rses(self, rses: Iterable[str]) -> frozenset[str]:
        return frozenset(site for rse in rses for site in self._sites.get(rse, ()))


def locations_refresh(*, workflow: Workflow, spec: WorkflowSpec, fenced: Fenced) -> None:
    """Read the locations again of files that are left and were not looked for lately.

    Raises:
        ServiceUnavailable: Rucio did not answer; what was read stays.
    """
    if spec.input is None or spec.trust_sitelists:
        return  # jobs read from wherever a copy is
    places, before = Places(workflow, spec), clock.now() - timedelta(seconds=INPUT_LOCATIONS_SECONDS)
    blocks = sorted({name for (name,) in files_with_work(workflow, spec, ("block_name",), _old(workflow, before))})
    for block in blocks:
        rows = list(_old(workflow, before).filter(block_name=block))
        now = clock.now()
        located = places.read(block, {row.lfn: row.parents for row in rows})
        same = defaultdict[Location, list[int]](list)
        for row in rows:
            same[located[row.lfn]].append(row.pk)
        with fenced():
            for location, keys in same.items():
                InputFile.objects.filter(pk__in=keys).update(
                    rses=list(location.rses), parent_rses=[list(rses) for rses in location.parent_rses], located_at=now
                )
    if blocks:
        log.info("input locations read again", request_name=workflow.request_id, blocks=len(blocks))


def waiting_files(workflow: Workflow) -> QuerySet[InputFile]:
    """Files that no job can be planned for now, those that wait longest first."""
    return InputFile.objects.filter(workflow=workflow, waiting_since__isnull=False).order_by("waiting_since", "lfn")


def only_waiting_left(workflow: Workflow, spec: WorkflowSpec) -> bool:
    """Whether all work that is left is that of files which wait."""
    waiting = waiting_files(workflow).order_by()
    if spec.input is None or not waiting.exists():
        return False
    if not spec.splitting.algorithm.by_lumi:
        return not files_left(workflow).filter(waiting_since__isnull=True).exists()
    held = lumis.union(*(lumis.from_json(row) for row in waiting.values_list("lumis", flat=True).iterator(chunk_size=_CHUNK)))
    left = lumis_left(workflow)
    return not lumis.subtract(lumis.union(left.fresh, left.tried), held)


def waiting_record(workflow: Workflow, *, waiting: Mapping[str, str], found: Iterable[str]) -> None:
    """Which files wait, by LFN with the reason, and which no longer do; in the caller's transaction."""
    over = [lfn for lfn in found if lfn not in waiting]  # a file that could be read may wait for others of its lumis
    InputFile.objects.filter(workflow=workflow, lfn__in=over).update(waiting_since=None, waiting_reason="")
    by_reason = defaultdict[str, list[str]](list)
    for lfn, reason in waiting.items():
        by_reason[reason].append(lfn)
    for reason, lfns in by_reason.items():
        rows = InputFile.objects.filter(workflow=workflow, lfn__in=lfns, excluded_at__isnull=True)
        rows.update(waiting_since=Coalesce("waiting_since", clock.now()), waiting_reason=reason)


def _old(workflow: Workflow, before: datetime) -> QuerySet[InputFile]:
    """Looked for too long ago, or before a job could not read it: then single copies elsewhere count."""
    failed = UnreadableInput.objects.filter(workflow=workflow, lfn=OuterRef("lfn"), last_at__gt=OuterRef("located_at"))
    rows = InputFile.objects.filter(workflow=workflow, excluded_at__isnull=True)
    return rows.filter(Q(located_at__lte=before) | Exists(failed))


class Unreadable:
    """The evidence as it is when this is made; one query."""

    def __init__(self, workflow: Workflow) -> None:
        self._rows: dict[str, list[UnreadableInput]] = defaultdict(list)
        for row in UnreadableInput.objects.filter(workflow=workflow):
            self._rows[row.lfn].append(row)
        self._apart = timedelta(seconds=in_force().unreadable_apart_seconds)

    def at(self, file: InputFile | InputRow) -> Mapping[str, datetime]:
        """Sites that failed to read it, and when last."""
        found: dict[str, datetime] = {}
        for row in self._of(file):
            found[row.site] = max(row.last_at, found.get(row.site, row.last_at))
        return found

    def sure_at(self, file: InputFile | InputRow) -> frozenset[str]:
        """Sites whose own storage said that the file is not there, or damaged."""
        return frozenset(row.site for row in self._of(file) if not row.not_sure)

    def again_at(self, file: InputFile | InputRow) -> datetime:
        """When it may be tried again where it failed; it has failed."""
        return max(row.last_at for row in self._of(file)) + self._apart

    def __contains__(self, lfn: str) -> bool:
        return lfn in self._rows

    def twice(self, file: InputFile | InputRow, *, looked_at: datetime) -> bool:
        """Whether it failed in two submissions far enough apart for a storage to come back in between, the first before
        ``looked_at``.
        """
        rows = self._of(file)
        first = [row for row in rows if row.last_at < looked_at]
        return any(two.last_at - one.last_at >= self._apart for one in first for two in rows if two.fence != one.fence)

    def words(self, file: InputFile | InputRow) -> str:
        """All of it in one line."""
        said = [f"at {row.site} on {row.last_at:%Y-%m-%d %H:%M} UTC (code {row.code})" for row in self._of(file)]
        return "could not be read " + ", ".join(said)

    def _of(self, file: InputFile | InputRow) -> list[UnreadableInput]:
        rows = self._rows.get(file.lfn, [])
        return [row for row in rows if file.restored_at is None or row.last_at > file.restored_at]
