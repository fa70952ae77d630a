"""Where a file name of a configuration lies: ``file:`` paths as they are, LFNs by the site's ``storage.json``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from .errors import FILE_OPEN, CmsException

_SITE = re.compile(r'^GLIDEIN_CMSSite\s*=\s*"([^"]+)"', re.MULTILINE)


def local_path(name: str) -> Path:
    """The local path of ``file:...`` or of an LFN; CmsException(FileOpenError) when the site cannot be told."""
    if name.startswith("file:"):
        return Path(name.removeprefix("file:"))
    if not name.startswith("/store/"):
        raise CmsException(FILE_OPEN, "FileOpenError", f"{name}: neither file: nor an LFN below /store")
    root, ad = os.environ.get("SITECONF_ROOT"), os.environ.get("_CONDOR_MACHINE_AD")
    site = _SITE.search(Path(ad).read_text(encoding="utf-8")) if ad and Path(ad).is_file() else None
    if not root or site is None:
        raise CmsException(
            FILE_OPEN, "FileOpenError", f"{name}: SITECONF_ROOT and a machine ad with GLIDEIN_CMSSite are needed for LFNs"
        )
    for volume in json.loads((Path(root) / site.group(1) / "storage.json").read_text(encoding="utf-8")):
        for protocol in volume["protocols"]:
            if protocol["protocol"] == "file" and (Path(protocol["prefix"] + name)).is_file():
                return Path(protocol["prefix"] + name)
    raise CmsException(FILE_OPEN, "FileOpenError", f"Failed to open the file {name}: no volume of {site.group(1)} has it")
