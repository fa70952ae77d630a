"""Where a file name of a configuration lies, and its bytes: PFNs as they are, LFNs by what the site publishes of its storage.

As CMSSW does it: the catalogues of ``JobConfig/site-local-config.xml`` name volumes and protocols in the order in which they are
tried; where there are none, ``storage.json`` is taken as it comes. ``root://`` is really read, by the node's own client.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import FILE_OPEN, CmsException

_SITE = re.compile(r'^GLIDEIN_CMSSite\s*=\s*"([^"]+)"', re.MULTILINE)
_ROOT = re.compile(r"(root://[^/]+/)(/.*)")
_PROTOCOLS = ("file", "XRootD")
#: What XRootD's clients wait for by themselves would be minutes.
_PATIENCE = {"XRD_CONNECTIONWINDOW": "30", "XRD_CONNECTIONRETRY": "2", "XRD_REQUESTTIMEOUT": "60"}
_CLIENT_SECONDS = 600


def existing(name: str) -> str:
    """The first PFN of ``file:...``, ``root://...`` or an LFN that is there; CmsException(FileOpenError) when none is."""
    problems = []
    for pfn in _pfns(name):
        problem = _problem(pfn)
        if not problem:
            return pfn
        problems.append(problem)
    detail = "; ".join(problems) or "no catalogue of the site has a PFN for it"
    raise CmsException(FILE_OPEN, "FileOpenError", f"Failed to open the file {name}: {detail}")


def local_copy(pfn: str) -> Path:
    """The file itself, or what ``xrdcp`` brought of it, which is removed when this process ends."""
    if not _ROOT.fullmatch(pfn):
        return Path(pfn.removeprefix("file:"))
    directory = tempfile.mkdtemp(prefix="read.", dir=".")
    copy = Path(directory) / pfn.rpartition("/")[2]
    atexit.register(_drop, copy)
    problem = _ask("xrdcp", "--nopbar", pfn, str(copy))
    if problem:
        raise CmsException(FILE_OPEN, "FileOpenError", f"Failed to open the file {pfn}: {problem}")
    return copy


def _drop(copy: Path) -> None:
    copy.unlink(missing_ok=True)
    copy.parent.rmdir()


def _pfns(name: str) -> Iterator[str]:
    """PFNs to try, in order."""
    if name.startswith(("file:", "root://")):
        yield name
        return
    if not name.startswith("/store/"):
        raise CmsException(FILE_OPEN, "FileOpenError", f"{name}: neither a PFN nor an LFN below /store")
    root, ad = os.environ.get("SITECONF_ROOT"), os.environ.get("_CONDOR_MACHINE_AD")
    site = _SITE.search(Path(ad).read_text(encoding="utf-8")) if ad and Path(ad).is_file() else None
    given = os.environ.get("SITECONFIG_PATH")
    if not given and (not root or site is None):
        raise CmsException(
            FILE_OPEN, "FileOpenError", f"{name}: SITECONF_ROOT and a machine ad with GLIDEIN_CMSSite are needed for LFNs"
        )
    directory = Path(given) if given else Path(root or "") / (site.group(1) if site else "")
    described = next((place for place in (directory, directory.parent) if (place / "storage.json").is_file()), directory)
    volumes = json.loads((described / "storage.json").read_text(encoding="utf-8"))
    local, every = directory / "JobConfig/site-local-config.xml", list(_described(volumes))
    if local.is_file():
        catalogues = ElementTree.parse(local).getroot().iterfind("site/data-access/catalog")  # noqa: S314  (the site's own)
        every = [one for each in catalogues for one in every if one[:2] == (each.get("volume"), each.get("protocol"))]
    for _, protocol, rules in every:
        pfn = _translated(name, protocol, rules)
        if pfn:
            yield f"file:{pfn}" if pfn.startswith("/") else pfn


def _described(volumes: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Volume, protocol and all protocols of the volume by name, for each that can be read here."""
    for volume in volumes:
        protocols = {each["protocol"]: each for each in volume["protocols"]}
        yield from ((volume["volume"], name, protocols) for name in protocols if name in _PROTOCOLS)


def _translated(lfn: str, protocol: str, protocols: dict[str, Any]) -> str | None:
    """By prefix, or by the first rule that matches; a chained rule is given what the protocol that it names makes of the name."""
    described = protocols[protocol]
    if "prefix" in described:
        return str(described["prefix"]) + lfn
    for rule in described["rules"]:
        name = _translated(lfn, rule["chain"], protocols) if rule.get("chain") else lfn
        found = re.fullmatch(rule["lfn"], name or "")
        if found:
            return re.sub(r"\$(\d)", lambda group, found=found: found.group(int(group.group(1))), rule["pfn"])  # type: ignore[misc]
    return None


def _problem(pfn: str) -> str:
    """Why it cannot be opened; empty when it is there."""
    remote = _ROOT.fullmatch(pfn)
    if remote:
        problem = _ask("xrdfs", remote.group(1), "stat", remote.group(2))
        return f"{pfn}: {problem}" if problem else ""
    return "" if Path(pfn.removeprefix("file:")).is_file() else f"{pfn.removeprefix('file:')} does not exist"


def _ask(*words: str) -> str:
    """Run a client of XRootD; its last words when it failed."""
    try:
        done = subprocess.run(
            words, env={**_PATIENCE, **os.environ}, capture_output=True, text=True, check=False, timeout=_CLIENT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"{words[0]} ended with {done.returncode}"])[-1]
