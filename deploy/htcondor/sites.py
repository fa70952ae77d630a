"""The mock CMS sites of the pool and where their storage is.

Owns the site names, the RSE of each site and the shape of a site's slot. The storage directories themselves are
created by the stack; which RSEs exist in Rucio is decided in ``deploy/rucio``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MockSite:
    """One partitionable slot that advertises itself the way a CMS glidein does."""

    cms_name: str
    short_name: str
    disk_rse: str
    cpus: int = 8
    memory_mb: int = 16384


SITES: tuple[MockSite, ...] = (
    MockSite("T1_US_FNAL", "FNAL", "T1_US_FNAL_Disk"),
    MockSite("T2_CH_CERN", "CERN", "T2_CH_CERN"),
    MockSite("T2_US_Purdue", "Purdue", "T2_US_Purdue"),
)


def write_site_configuration(siteconf_root: Path, storage_root: Path) -> None:
    """Create each site's storage directory, and ``<siteconf_root>/<site>/storage.json`` in the form that CMS sites publish.

    The PFN is the prefix followed by the LFN.
    """
    for site in SITES:
        storage, directory = storage_root / site.disk_rse, siteconf_root / site.cms_name
        (storage / "store").mkdir(parents=True, exist_ok=True)
        directory.mkdir(parents=True, exist_ok=True)
        description = {
            "site": site.cms_name,
            "volume": f"{site.short_name}_Disk",
            "protocols": [{"protocol": "file", "access": "local", "prefix": str(storage)}],
            "type": "DISK",
            "rse": site.disk_rse,
        }
        (directory / "storage.json").write_text(json.dumps([description], indent=2) + "\n")
