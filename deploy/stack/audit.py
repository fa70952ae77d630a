"""``make audit``: what WMS2 is made of, written down offline, and whether an advisory is known for any of it.

    python -m deploy.stack.audit DIRECTORY LOCK...

Each lock of Python packages becomes a bill of materials (CycloneDX, JSON) in the directory; no service is asked for that.
Then OSV (https://osv.dev; ``WMS2_ADVISORIES_URL`` names a mirror) is asked by its public API about every package and version
of them. Ends with 0: no advisory is known; 1: some are; 3: that is not known, since OSV did not answer for all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

FOUND, UNKNOWN = 1, 3
OSV = "https://api.osv.dev"
#: So many packages OSV takes in one call.
_AT_ONCE = 500
_SECONDS = 60.0


class AdvisoriesUnknown(Exception):
    """OSV did not answer, or not for all that it was asked."""


def write_bill(lock: Path, directory: Path) -> Path:
    """The bill of materials of a lock, the same each time. Raises CalledProcessError: the lock cannot be read."""
    target = directory / f"{'-'.join(lock.with_suffix('').parts[-2:])}.cdx.json"
    argv = [sys.executable, "-m", "cyclonedx_py", "requirements", str(lock), "--output-reproducible", "--short-PURLs"]
    subprocess.run([*argv, "--of", "JSON", "-o", str(target)], check=True, stdin=subprocess.DEVNULL)
    return target


def packages(bill: Path) -> set[str]:
    """Package URLs, name and version of each component. Raises ValueError: one has no fixed version, or there are none."""
    listed = json.loads(bill.read_text(encoding="utf-8")).get("components", [])
    loose = [each["name"] for each in listed if not each.get("version")]
    if loose or not listed:
        raise ValueError(f"{bill}: no fixed version of {', '.join(loose) or 'anything'}")
    return {f"pkg:pypi/{re.sub('[-_.]+', '-', each['name']).lower()}@{each['version']}" for each in listed}


def advisories(url: str, purls: Sequence[str]) -> dict[str, set[str]]:
    """Package URL -> ids of what is known of it; only those of which something is. Raises AdvisoriesUnknown."""
    found: dict[str, set[str]] = {}
    waiting: list[dict[str, Any]] = [{"package": {"purl": purl}} for purl in purls]
    while waiting:
        now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        results = _asked("POST", f"{url}/v1/querybatch", {"queries": now}).get("results")
        if not isinstance(results, list) or len(results) != len(now):
            raise AdvisoriesUnknown(f"{url} did not answer for all {len(now)} packages")
        for query, result in zip(now, results, strict=True):
            for each in result.get("vulns", ()):
                found.setdefault(query["package"]["purl"], set()).add(each["id"])
            if token := result.get("next_page_token"):
                waiting.append({**query, "page_token": token})
    return found


def report(url: str, found: Mapping[str, set[str]]) -> Iterator[str]:
    """A line for each advisory that was not withdrawn: package, id, other names, what it is about. Raises AdvisoriesUnknown."""
    for purl, names in sorted(found.items()):
        for name in sorted(names):
            known = _asked("GET", f"{url}/v1/vulns/{name}")
            if not known.get("withdrawn"):
                others = ", ".join(known.get("aliases", ()))
                about = str(known.get("summary") or known.get("details") or "")[:200].partition("\n")[0]
                yield f"{purl}: {name} ({others}) {about}"


def main(arguments: Sequence[str]) -> int:
    """Write the bills, ask, print. 0, ``FOUND`` or ``UNKNOWN``."""
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    purls: set[str] = set()
    for lock in map(Path, arguments[1:]):
        bill = write_bill(lock, directory)
        purls |= packages(bill)
        print(f"{lock}: bill of materials in {bill}", flush=True)
    url = os.environ.get("WMS2_ADVISORIES_URL") or OSV
    try:
        lines = list(report(url, advisories(url, sorted(purls))))
    except AdvisoriesUnknown as error:
        print(f"NOT KNOWN whether advisories exist for these {len(purls)} packages: {error}", file=sys.stderr)
        return UNKNOWN
    for line in lines:
        print(line)
    print(f"{len(purls)} packages, {len(lines)} advisories, as {url} knows them now")
    return FOUND if lines else 0


def _asked(method: str, url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    try:
        answer = requests.request(method, url, json=body, timeout=_SECONDS)
        answer.raise_for_status()
        found = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise AdvisoriesUnknown(f"{url}: {error}") from error
    if not isinstance(found, dict):
        raise AdvisoriesUnknown(f"{url} answered no object")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
