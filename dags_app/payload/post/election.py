"""The scripts that give a unit its site: ``elect`` (POST of landing) and ``reelect`` (PRE of the unit in the outer DAG).

Own when a unit may change its site (docs/design/model.md, Site re-election). No daemon is asked: the landing job has
left the queue before its POST runs, but DAGMan's own log holds the site it ran at (docs/design/htcondor.md, The elected site).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

from ..contract import codes, documents, files, names, scripts
from ..contract.codes import PayloadError
from ..contract.layout import (
    ELECTED_LOG,
    FIRST_INCLUDE,
    FIRST_MACRO,
    INNER_DAG,
    MERGE,
    ORPHANS_FILE,
    PROCESSING,
    SITE_ATTRIBUTE,
    SITE_INCLUDE,
    SITE_MACRO,
    SPREAD_FILE,
    rescue_glob,
    utc_now,
)
from . import eventlog, script_failures
from .resources import landing_sites

#: Multiples of it are spread over the unit interval as evenly as any (golden ratio).
_GOLDEN = 0.6180339887498949
_MERGE_DONE = re.compile(rf"^DONE {MERGE}\s*$", re.MULTILINE)


def elect(directory: Path, nodes_log: str, job_id: str, return_value: int) -> int:
    """Pin the unit in ``directory`` to the site its landing job ran at; 0, or 1 when the landing job failed.

    Once for each landing job: DAGMan may run the script again after the unit has left that site and landed elsewhere.
    PayloadError when the log does not name the site: landing.sub needs ``ulog_execute_attrs``, the site the attribute.
    """
    scripts.ensure_includes(directory)
    site = eventlog.execute_site(directory / nodes_log, job_id, SITE_ATTRIBUTE)
    if return_value != 0:
        scripts.log(directory, f"elect: the landing job {job_id} ended with {return_value}")
        script_failures.log_landing(directory, job_id, return_value, site or "")
        return 1
    if not site:
        raise PayloadError(codes.INVALID_DOCUMENT, f"{nodes_log}: no execute event of job {job_id} has {SITE_ATTRIBUTE}")
    landing = f" {scripts.submission_fence(directory)} {job_id} "  # another schedd may have a job of the same number
    if landing not in files.tail_text(directory / ELECTED_LOG, 1000):
        files.write_atomic(directory / SITE_INCLUDE, f"{SITE_MACRO} = {site}\n")
        files.append_line(directory / ELECTED_LOG, f"{utc_now()}{landing}{site}")  # the site last: it is read there
    return 0


def reelect(directory: Path, unit: str, retry: int) -> int:
    """Before every start of ``unit`` (first, retry, rescue), in the DAG's directory: forget a site that is to be avoided.

    Then the unit lands anew: its rescues are renamed, its POST results dropped, its unmerged files listed for the cleaner.
    Never after its merge is done. 1 on a retry without a re-election, which would only repeat nodes that gave up; else 0.
    """
    place = directory / unit
    scripts.ensure_includes(place)
    site = scripts.elected_site(place)
    leaves = site in scripts.avoided_sites(place) and not (
        (rescues := _rescues(place)) and _MERGE_DONE.search(rescues[-1].read_text(encoding="utf-8"))
    )
    if site is None or leaves:
        files.write_atomic(place / FIRST_INCLUDE, f"{FIRST_MACRO} = {first_site(place)}\n")
        if site is not None:
            _leave_site(place, site)
            scripts.log(place, f"reelect: left {site}, which is to be avoided")
        return 0
    if retry > 0:
        scripts.log(
            place, f"reelect: retry {retry} refused, {site} is not to be avoided; see the unit's *.post.json for the cause"
        )
        return 1
    return 0


def first_site(place: Path) -> str:
    """Where the unit's landing is to look first, so that a DAG's units are at sites by their slots; "" where the pool does it.

    Units in a row, and a unit's elections, go through the sites as evenly as can be; where they begin is each DAG's own.
    """
    try:
        slots = json.loads(files.read_text(place.parent / SPREAD_FILE) or "{}")
    except ValueError as error:
        scripts.log(place, f"reelect: {SPREAD_FILE} cannot be read, the landing takes any site: {error}")
        return ""
    sites = sorted(landing_sites(place) - scripts.avoided_sites(place)) if slots else []
    shares = [int(slots.get(site, 0)) for site in sites]
    bounds = list(accumulate(shares if any(shares) else [1] * len(sites)))  # without any slots all are alike
    if not bounds:
        return ""
    elections = len(files.tail_text(place / ELECTED_LOG, 1000).splitlines())
    number = crc32(place.parent.name.encode()) + int(re.sub(r"\D", "", place.name) or 0) + elections
    return sites[bisect_right(bounds, number * _GOLDEN % 1 * bounds[-1])]


def _rescues(place: Path) -> list[Path]:
    return sorted(place.glob(rescue_glob(INNER_DAG)))


def _leave_site(place: Path, site: str) -> None:
    """The order matters when this is killed half way: without ``site.inc`` nothing here would run again."""
    for orphan in _orphans(place, site):
        files.append_line(place / ORPHANS_FILE, json.dumps(orphan))
    elections = len(files.tail_text(place / ELECTED_LOG, 1000).splitlines())
    for rescue in _rescues(place):
        rescue.replace(rescue.with_name(f"{rescue.name}.site{elections}"))
    for post in place.glob("*.post.json"):
        post.unlink()
    (place / SITE_INCLUDE).unlink()


def _orphans(place: Path, site: str) -> list[dict[str, Any]]:
    """Files that this unit's attempts staged out at ``site``, and the journals there, which also cover starts without a report.

    A report that cannot be read is logged instead.
    """
    job, unit = documents.read_job(place.parent), documents.read_unit(place)
    orphans: list[dict[str, Any]] = [
        {"site": site, "journals": names.journals_lfn(job, unit, role)} for role in (PROCESSING, MERGE)
    ]
    for path in sorted(place.glob("*.report.json")):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["site"] == site:
                left = [{name: each[name] for name in ("lfn", "pfn", "rse")} for each in report["outputs"]]
                orphans += [{"site": site, "node": report["node"], **each} for each in left]
        except (OSError, ValueError, KeyError, TypeError) as error:
            scripts.log(place, f"reelect: {path.name} cannot be read, its files at {site} are not listed: {error!r}")
    return orphans
