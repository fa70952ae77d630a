"""A site's storage: from LFN to PFN by its ``storage.json``, stage-out and removal. Owns how a file gets there whole.

``$SITECONF_ROOT/<site>/storage.json`` is CMS's own form (docs/design/services.md, Storage at a site): volumes with protocols,
each protocol with a ``prefix`` or with ``rules``. This payload writes through the ``file`` protocol (a mounted or local file
system).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..contract import codes, files
from ..contract.codes import PayloadError
from ..contract.reading import Value
from ..contract.reports import StoredFile

_PROTOCOL = "file"


@dataclass(frozen=True)
class Rule:
    """An LFN to PFN rule of a protocol: first match wins, ``$1`` is the first group."""

    pattern: str
    pfn: str


@dataclass(frozen=True)
class Volume:
    """A disk volume of a site that the payload can read and write."""

    site: str
    rse: str
    prefix: str | None
    rules: tuple[Rule, ...]

    def path(self, lfn: str) -> Path:
        """Where ``lfn`` lies in this volume's file system."""
        if self.prefix is not None:
            return Path(self.prefix + lfn)
        for rule in self.rules:
            match = re.match(rule.pattern, lfn)
            if match:
                return Path(match.expand(re.sub(r"\$(\d)", r"\\\1", rule.pfn)))
        raise PayloadError(codes.STORAGE_UNUSABLE, f"no rule of {self.rse} ({self.site}, protocol {_PROTOCOL}) matches {lfn}")

    def pfn(self, lfn: str) -> str:
        """The PFN of ``lfn`` as text."""
        return f"file://{self.path(lfn)}"


def site_volume(site: str) -> Volume:
    """The disk volume of ``site`` to stage out to: the first one with protocol ``file``.

    PayloadError when ``SITECONF_ROOT`` is not set, the site has no ``storage.json``, or it has no such volume.
    """
    root = os.environ.get("SITECONF_ROOT")
    if not root:
        raise PayloadError(
            codes.STORAGE_UNUSABLE, "SITECONF_ROOT is not set: the pool must give every job its directory of sites"
        )
    path = Path(root) / site / "storage.json"
    try:
        document = Value(json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise PayloadError(codes.STORAGE_UNUSABLE, f"storage description of {site} cannot be read: {path}: {error}") from error
    for volume in document.items():
        kind = volume.get("type")
        if kind is not None and kind.text() != "DISK":
            continue
        for protocol in volume["protocols"].items():
            if protocol["protocol"].text() == _PROTOCOL:
                return _volume(site, volume, protocol)
    raise PayloadError(
        codes.STORAGE_UNUSABLE, f"{path}: no DISK volume with protocol {_PROTOCOL!r}, the one this payload writes to"
    )


def _volume(site: str, volume: Value, protocol: Value) -> Volume:
    prefix, rules = protocol.get("prefix"), protocol.get("rules")
    if prefix is None and rules is None:
        raise protocol.refuse("neither prefix nor rules")
    return Volume(
        site=site,
        rse=volume["rse"].text(),
        prefix=prefix.text() if prefix else None,
        rules=tuple(Rule(rule["lfn"].text(), rule["pfn"].text()) for rule in rules.items()) if rules else (),
    )


def stage_out(source: Path, volume: Volume, lfn: str, execution: str) -> StoredFile:
    """Copy ``source`` to where ``lfn`` lies: under a temporary name, flushed, renamed, read back and compared.

    Never over something that is there: the name is taken first, by making an empty file that only one process can make.
    ``execution`` is of the temporary name.
    """
    target = volume.path(lfn)
    part = target.with_name(f".{target.name}.{execution}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        copied = files.copy_with_adler32(source, part)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        part.replace(target)
        files.sync_directory(target.parent)
        stored, size_bytes = files.adler32(target), target.stat().st_size
    except OSError as error:
        if part.is_file():
            part.unlink()
        raise PayloadError(
            codes.STAGE_OUT_FAILED, f"stage-out of {source.name} to {target} ({volume.rse}) failed: {error}"
        ) from error
    if stored != copied or size_bytes != source.stat().st_size:
        raise PayloadError(
            codes.STAGE_OUT_FAILED,
            f"{target} ({volume.rse}) is not what was written: {size_bytes} bytes, adler32 {stored}, expected "
            f"{source.stat().st_size} bytes, adler32 {copied}",
        )
    return StoredFile(lfn, volume.pfn(lfn), volume.rse, size_bytes, stored)


def remove_parts(target: Path) -> None:
    """Remove what attempts that were killed left beside ``target``."""
    for part in target.parent.glob(f".{target.name}.*.part"):
        part.unlink(missing_ok=True)


def remove(volume: Volume, lfn: str) -> bool:
    """Remove ``lfn`` from the volume, with its leftovers; False when it was not there."""
    target = volume.path(lfn)
    remove_parts(target)
    try:
        target.unlink()
    except FileNotFoundError:
        return False
    return True
