"""The mock CMS sites of the pool and where their storage is.

Owns the site names, the RSE of each site, the shape of a site's slot and what a site publishes of its storage. Which RSEs exist
in Rucio is decided in ``deploy/rucio``; the server behind a storage is ``deploy/xrootd``'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

SITE_LOCAL_CONFIG = """<site-local-config>
  <site name="{site.cms_name}">
    <data-access>
      <catalog volume="{volume}" protocol="{site.protocol}"/>
    </data-access>
    <stage-out>
      <method volume="{volume}" protocol="{site.protocol}" command="{command}"/>
    </stage-out>
  </site>
</site-local-config>
"""
#: Names of protocols in ``storage.json``: a mounted file system; a server that is asked over root:// alone.
FILE, XROOTD = "file", "XRootD"


@dataclass(frozen=True, slots=True)
class MockSite:
    """One partitionable slot that advertises itself the way a CMS glidein does."""

    cms_name: str
    short_name: str
    disk_rse: str
    cpus: int = 8
    memory_mb: int = 16384
    protocol: str = FILE
    #: As glideins call the system of the container that jobs run in (``node/glidein``); empty: there is none.
    container: str = ""


SITES: tuple[MockSite, ...] = (
    MockSite("T1_US_FNAL", "FNAL", "T1_US_FNAL_Disk"),
    MockSite("T2_CH_CERN", "CERN", "T2_CH_CERN"),
    MockSite("T2_US_Purdue", "Purdue", "T2_US_Purdue", container="rhel8"),
    MockSite("T2_DE_DESY", "DESY", "T2_DE_DESY", protocol=XROOTD),
)


def write_site_configuration(siteconf_root: Path, storage_root: Path, server: str) -> None:
    """Create each site's storage, and what the site publishes below ``<siteconf_root>/<site>``, in the form of CMS sites.

    ``storage.json`` says how an LFN becomes a PFN: by a prefix. The site behind ``server`` (``root://host:port/``) has
    ``JobConfig/site-local-config.xml`` too, with its method of stage-out, and so has the part of a site that its containers name;
    the others leave that to the protocols of their volume.
    """
    for site in SITES:
        storage, directory = storage_root / site.disk_rse, siteconf_root / site.cms_name
        (storage / "store").mkdir(parents=True, exist_ok=True)
        jobs = directory / ("Part/JobConfig" if site.container else "JobConfig")
        jobs.mkdir(parents=True, exist_ok=True)
        volume = f"{site.short_name}_Disk"
        local = {"protocol": FILE, "access": "local", "prefix": str(storage)}
        remote = {"protocol": XROOTD, "access": "site-rw", "prefix": server}
        description = {
            "site": site.cms_name,
            "volume": volume,
            "protocols": [remote if site.protocol == XROOTD else local],
            "type": "DISK",
            "rse": site.disk_rse,
        }
        (directory / "storage.json").write_text(json.dumps([description], indent=2) + "\n")
        if site.protocol == XROOTD or site.container:
            command = "xrdcp" if site.protocol == XROOTD else "cp"
            text = SITE_LOCAL_CONFIG.format(site=site, volume=volume, command=command)
            (jobs / "site-local-config.xml").write_text(text)
