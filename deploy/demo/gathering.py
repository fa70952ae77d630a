"""Gathering the facts of all requests from rows, disk, DBS, Rucio and the schedd. Import only after ``django.setup()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rucio.client import Client

from deploy.demo import documents, rows, storage
from deploy.demo.catalogues import Dbs, Rucio, outer_dagmans, statuses_in_reqmgr2
from deploy.demo.facts import (
    Asked,
    DatasetFacts,
    EventId,
    LumiId,
    PoolFacts,
    RequestFacts,
    RequestLine,
    RootFile,
    RucioFile,
    Rule,
)
from wms2.adapters.factory import RUCIO_SCOPE
from wms2.conf import Conf


@dataclass(frozen=True, slots=True)
class Sources:
    """Where facts come from."""

    dbs: Dbs
    rucio: Rucio
    roots: dict[str, Path]
    rules: tuple[Rule, ...]
    given_out: frozenset[str]  # LFNs that jobs read from the XRootD server


def gather(settings: Conf, say: Callable[[str], None]) -> tuple[list[RequestFacts], PoolFacts]:
    """Everything about every request."""
    rucio = Rucio(Client(), RUCIO_SCOPE)
    given_out = storage.given_out(settings.state_dir / "logs/xrootd.log")  # before anything is read here
    roots = rucio.roots(settings.state_dir / "storage")
    sources = Sources(Dbs(settings.dbs_reader_url), rucio, roots, rucio.rules(), given_out)
    requests = []
    for status_detail in rows.status_details():
        say(f"opening the outputs of {status_detail.name}")
        requests.append(_request(status_detail, sources, settings.reqmgr2_url))
    bases = {documents.unmerged_base(rows.document(request.name)).lstrip("/") for request in requests}
    unmerged = storage.files_below(root / base for root in sources.roots.values() for base in sorted(bases))
    pool = PoolFacts(
        jobs=outer_dagmans(settings.collector, settings.schedd_name, settings.instance, settings.condor_token_dir),
        unmerged=tuple(map(str, unmerged)),
        tape_rses=rucio.tape_rses,
        constraints=rows.constraints(),
        forgotten=tuple(_forgotten(settings.state_dir / "logs")),
    )
    return requests, pool


def _forgotten(logs: Path) -> Iterator[str]:
    for log in sorted(logs.glob("*.log")):
        yield from (line for line in log.read_text(errors="replace").splitlines() if "forgotten request" in line)


def _request(status_detail: RequestLine, sources: Sources, reqmgr2_url: str) -> RequestFacts:
    workflow = rows.workflow_of(status_detail.name)
    document = rows.document(status_detail.name)
    asked = documents.asked(document)
    datasets = rows.dataset_names(workflow)
    events, lumis, over_root, problems = _read_input(asked, document, rows.excluded_files(workflow), sources)
    return RequestFacts(
        name=status_detail.name,
        status=status_detail.status,
        asked=asked,
        dataset_steps=tuple(step for _, step in datasets),
        planned=tuple(rows.planned(workflow)),
        lost_numbers=rows.lost_numbers(workflow),
        input_events=tuple(events),
        input_lumis=frozenset(lumis),
        input_problems=tuple(problems),
        input_over_root={lfn: lfn in sources.given_out for lfn in over_root},
        datasets=tuple(_dataset(name, sources) for name, _ in datasets),
        dags=rows.dags(workflow),
        open_effects=rows.open_effects(status_detail.name),
        ledger=rows.account(workflow),
        units_not_done=rows.units_not_done(workflow),
        rounds=rows.rounds(workflow),
        reqmgr2_statuses=statuses_in_reqmgr2(reqmgr2_url, status_detail.name) if "RequestTransition" in document else (),
    )


def _read_input(
    asked: Asked, document: dict[str, object], excluded: frozenset[str], sources: Sources
) -> tuple[list[EventId], set[LumiId], list[str], list[str]]:
    """Events and lumis that the document's lists let through, of the files that DBS has of the input dataset.

    Then the LFNs of those that lie behind a server, and problems.
    """
    events: list[EventId] = []
    wanted: set[LumiId] = set()
    over_root: list[str] = []
    problems: list[str] = []
    if asked.numbers is not None:
        return events, wanted, over_root, problems
    files = [f for f in sources.dbs.files(asked.input_dataset, ()) if f.is_valid and f.lfn not in excluded]
    pfns = sources.rucio.pfns([file.lfn for file in files])
    for known in files:
        pfn = pfns.get(known.lfn, "")
        file = storage.open_pfn(known.lfn, "", pfn) if pfn else RootFile(known.lfn, "", "", problem="Rucio has no replica")
        over_root += [known.lfn] if pfn.startswith(storage.OVER_ROOT) else []
        if file.problem:
            problems.append(f"{known.lfn}: {file.problem}")
        lumis = {lumi for lumi in file.lumis if documents.wants(document, lumi, known.block)}
        wanted |= lumis
        events += [event for event in file.events if event[:2] in lumis]
    return events, wanted, over_root, problems


def _dataset(name: str, sources: Sources) -> DatasetFacts:
    dbs_blocks = sources.dbs.blocks(name)
    rucio_blocks = sources.rucio.blocks(name)
    rucio_files = sources.rucio.files(rucio_blocks)
    on_disk = tuple(storage.open_pfn(file.lfn, rse, pfn) for file in rucio_files for rse, pfn in file.pfns.items())
    mine = {name, *(block.name for block in rucio_blocks), *(file.lfn for file in rucio_files)}
    return DatasetFacts(
        name=name,
        in_dbs=sources.dbs.has_dataset(name),
        dbs_blocks=dbs_blocks,
        dbs_files=sources.dbs.files(name, dbs_blocks),
        rucio_blocks=rucio_blocks,
        rucio_files=rucio_files,
        rules=tuple(rule for rule in sources.rules if rule.name in mine),
        on_disk=on_disk,
        unregistered=_unregistered(rucio_files, sources.roots),
        parents=sources.dbs.parents(name),
        refused=storage.refused_by_wmcore(on_disk),
    )


def _unregistered(files: Iterable[RucioFile], roots: dict[str, Path]) -> tuple[str, ...]:
    """Files in the dataset's directories, at any disk RSE, that have no replica there in Rucio."""
    known = {roots[rse] / file.lfn.lstrip("/") for file in files for rse in file.pfns}
    bases = {PurePosixPath(file.lfn).parents[1].relative_to("/") for file in files}
    found = storage.files_below(root / base for root in roots.values() for base in bases)
    return tuple(str(path) for path in found if path not in known)
