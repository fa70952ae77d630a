"""``hadd [-f] [options] TARGET SOURCE...``, simulated with uproot: merges the trees of ROOT files into one.

Writes what it merged to the file that ``WMS2_MERGE_REPORT`` names, if any: events, and events by run and lumi.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from .errors import CmsException
from .rootfiles import merge_files
from .storage import existing, local_copy

_WITH_VALUE = {"-n", "-cachesize", "-v", "-j", "-d"}


def main() -> int:
    """The command line; 0, or 1 with a message."""
    force, names = _parse(sys.argv[1:])
    if len(names) < 2:
        print("hadd: TARGET and at least one SOURCE are needed", file=sys.stderr)
        return 1
    target = Path(names[0])
    if target.exists() and not force:
        print(f"hadd error opening target file (does {target} exist?). Pass -f to replace it.", file=sys.stderr)
        return 1
    print(f"hadd Target file: {target}")
    try:
        events, lumis = merge_files([local_copy(existing(_pfn(name))) for name in names[1:]], target)
    except CmsException as error:
        print(f"hadd exiting due to error: {error.message}", file=sys.stderr)
        return 1
    report = os.environ.get("WMS2_MERGE_REPORT")
    if report:
        counts = {**dict.fromkeys(lumis, 0), **events.lumi_counts()}
        runs = {
            str(run): [[lumi, counts[r, lumi]] for r, lumi in sorted(counts) if r == run]
            for run in sorted({r for r, _ in counts})
        }
        Path(report).write_text(json.dumps({"events": len(events), "lumis": runs}), encoding="utf-8")
    return 0


def _pfn(name: str) -> str:
    """ROOT's programs know no LFN: a name with no protocol is of this machine."""
    return name if "://" in name else f"file:{name}"


def _parse(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether to replace the target, and the file names; other options of hadd do not matter here."""
    force, names, position = False, [], 0
    while position < len(arguments):
        word = arguments[position]
        if word.startswith("-f"):
            force = True
        elif word in _WITH_VALUE:
            position += 1
        elif not word.startswith("-"):
            names.append(word)
        position += 1
    return force, names


if __name__ == "__main__":
    sys.exit(main())
