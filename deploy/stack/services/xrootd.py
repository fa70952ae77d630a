"""The XRootD server, the storage of the mock site that has no other. ``deploy/xrootd`` knows how it is set up and run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deploy.htcondor.sites import SITES, XROOTD
from deploy.stack.services.base import Place, Service
from deploy.xrootd.server import Server


def server(directory: Path, prefix: Path, port: int) -> Server:
    """The server of the stack in this directory: its storage is that of the site's RSE."""
    rse = next(site.disk_rse for site in SITES if site.protocol == XROOTD)
    return Server(prefix, directory / "xrootd", directory / "storage" / rse, port)


def service(place: Place, server: Server) -> Service:
    service = place.service("xrootd", *server.argv, problem=server.problem)
    return replace(service, cwd=place.directory, prepare=server.prepare)
