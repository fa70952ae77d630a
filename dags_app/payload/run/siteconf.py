"""What a site says of its storage: volumes, what they call files, and where its jobs stage out to. Owns the reading of it.

CMS's own files (docs/design/services.md, Storage at a site): ``storage.json`` and ``JobConfig/site-local-config.xml``, in the
directory that a pilot names by ``SITECONFIG_PATH``; below ``SITECONF_ROOT`` or, where that is not set, below CVMFS.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, Optional
from xml.etree import ElementTree

from ..contract import codes
from ..contract.codes import PayloadError
from ..contract.convert import Json, read
from ..contract.reading import Value
from ..contract.rules import GIVEN_UP, pattern_problem, searched

CVMFS = Path("/cvmfs/cms.cern.ch")
_GROUP = re.compile(r"\$(\d)")
#: Options that only CMS's agents know, not the commands.
_NO_OPTIONS = ("--wma-", "--nochecksum", "--cerncastor", "--old")


class StorageProblem(PayloadError):
    """What one way to a storage refuses; another way, another volume or a later moment may do."""


class Rule(NamedTuple):
    """Names that match ``pattern`` as a whole become ``pfn``, in which ``$1`` is the first group.

    ``chain``: a protocol of the volume; the rule's name is what that one makes of the LFN.
    """

    pattern: Annotated[str, Json(key="lfn")]
    pfn: str
    chain: Optional[str]

    def problem(self) -> str:
        """What is wrong with it."""
        if problem := pattern_problem(self.pattern):
            return f"lfn: {problem}"
        groups = re.compile(self.pattern).groups
        return next((f"lfn has no group ${used}" for used in _GROUP.findall(self.pfn) if int(used) > groups), "")

    def match(self, name: str) -> re.Match[str] | None:
        """Of a name as a whole. StorageProblem: it takes too long, and the next rule may make a name that is not the file's."""
        match = searched(self.pattern, name, re.fullmatch)
        if match is None and self.pattern in GIVEN_UP:
            raise StorageProblem(
                codes.STORAGE_UNUSABLE, f"the rule {self.pattern[:200]!r} of storage.json takes too long on {name}"
            )
        return match

    def applied_to(self, name: str) -> str | None:
        """What becomes of a name; None when it does not match."""
        match = self.match(name)
        return _GROUP.sub(lambda group: match[int(group[1])] or "", self.pfn) if match else None


class Protocol(NamedTuple):
    """How a volume names files for one protocol: ``prefix`` before the LFN, or the first of ``rules`` that matches."""

    name: Annotated[str, Json(key="protocol")]
    access: Annotated[str, Json(absent="")]
    prefix: Optional[str]
    rules: Annotated[tuple[Rule, ...], Json(absent=())]

    def problem(self) -> str:
        """What is wrong with it."""
        return "" if self.prefix is not None or self.rules else "neither prefix nor rules"

    @property
    def example(self) -> str:
        """What its names begin like."""
        return self.rules[0].pfn if self.prefix is None else self.prefix


class Description(NamedTuple):
    """A volume of ``storage.json``."""

    site: str
    volume: Annotated[str, Json(absent="")]
    kind: Annotated[str, Json(key="type", absent="DISK")]
    rse: Annotated[str, Json(absent="")]  # federations have none
    protocols: tuple[Protocol, ...]

    def named(self, name: str) -> list[Protocol]:
        """The protocols of a name, mostly one."""
        return [protocol for protocol in self.protocols if protocol.name == name]

    def pfn(self, protocol: Protocol, lfn: str) -> str:
        """What a protocol calls ``lfn``; StorageProblem when no rule matches."""
        found = self._translated((protocol,), lfn, ())
        if found is None:
            text = f"no rule of {self.rse} ({self.site}, protocol {protocol.name}) matches {lfn}"
            raise StorageProblem(codes.STORAGE_UNUSABLE, text)
        return f"file://{found}" if found.startswith("/") else found

    def _translated(self, protocols: Sequence[Protocol], name: str, through: tuple[str, ...]) -> str | None:
        for protocol in protocols:
            if protocol.name in through:
                text = f"{self.rse} ({self.site}): the chain {' -> '.join((*through, protocol.name))} has no end"
                raise StorageProblem(codes.STORAGE_UNUSABLE, text)
            if protocol.prefix is not None:
                return protocol.prefix + name
            for rule in (rule for rule in protocol.rules if rule.match(name)):
                before = (*through, protocol.name)
                chained = self._translated(self.named(rule.chain), name, before) if rule.chain else name
                found = None if chained is None else rule.applied_to(chained)
                if found is not None:
                    return found
        return None


class Method(NamedTuple):
    """One way to stage out. ``command``: CMS's name of the tool, empty when the site leaves it to us."""

    description: Description
    protocol: Protocol
    command: str = ""
    options: tuple[str, ...] = ()


class _Unusable(NamedTuple):
    """A way into the storage of ``site`` that cannot be gone."""

    site: str
    why: str


def methods(site: str) -> tuple[Method, ...]:
    """The ways to stage out from ``site``, in their order: into its own storage, then into that of the sites it falls back to.

    As its JobConfig says; without one, the protocols of its first DISK volume. PayloadError when the description cannot be found
    or read, or when no way in it can be used; one of several that cannot is left out.
    """
    root = _root()
    site, config, place = _job_config(root, site)
    found = list(_configured(root, site, config, place)) if config is not None and config.find("stage-out") is not None else []
    if not found:
        found = [*_described(root, site, place), *_old_fallback(config)]
    ways = [each for each in found if isinstance(each, Method)]
    unusable = [each for each in found if isinstance(each, _Unusable)]
    own_lost = site in {each.site for each in unusable} and site not in {way.description.site for way in ways}
    if not ways or own_lost:
        why = "; ".join(each.why for each in unusable) or "it has no DISK volume with an RSE and a protocol that is written by"
        raise PayloadError(codes.STORAGE_UNUSABLE, f"the storage description of {site} below {root} is of no use: {why}")
    for each in unusable:
        leave_out(site, each.why)
    return tuple(sorted(ways, key=lambda way: way.description.site != site))


def methods_elsewhere(site: str) -> tuple[Method, ...]:
    """The ways to stage out from the other parts of a site: itself, and its subsites. What cannot be read is left out."""
    root = _root()
    found: list[Method | _Unusable] = []
    for place in (root / site, *sorted((root / site).glob("*"))):
        try:
            config = _config_at(place)
            if config is not None and config.find("stage-out") is not None:
                found += _configured(root, site, config, place)
            elif place == root / site or _describes(place / "storage.json", site):
                found += _described(root, site, place)
        except PayloadError:
            continue
    return tuple(each for each in found if isinstance(each, Method))


def leave_out(site: str, what: str) -> None:
    """Say in the job's own log that a way of the site's is not gone."""
    print(f"wms2_payload: {site} has a way to stage out that cannot be used: {what}", file=sys.stderr)


def _root() -> Path:
    """The directory that has one of each site."""
    root, given = os.environ.get("SITECONF_ROOT"), _given()
    if root:
        return Path(root)
    if given is not None and not CVMFS.is_dir():
        config = _config_at(given)
        is_part = (given.parent / "storage.json").is_file() or (config is not None and config.find("subsite") is not None)
        return given.parent.parent if is_part else given.parent
    if CVMFS.is_dir():
        return CVMFS / "SITECONF"
    text = f"SITECONF_ROOT is not set and {CVMFS} not mounted: the pool must give every job its directory of sites"
    raise PayloadError(codes.STORAGE_UNUSABLE, text)


def _configured(root: Path, site: str, config: ElementTree.Element, place: Path) -> Iterator[Method | _Unusable]:
    """The methods of ``<stage-out>`` of the JobConfig in ``place``, usable or not. Another site's storage may be described
    badly."""
    for element in config.iterfind("stage-out/method"):
        at, volume = element.get("site", site), element.get("volume", "")
        try:
            entry = next((each for each in _entries(root, at, place) if (each.raw.get("volume") or "") == volume), None)
            description = _description(entry, at) if entry is not None else None
            protocols = description.named(element.get("protocol", "")) if description else []
            options = _options(element.get("option"))
        except PayloadError as error:
            yield _Unusable(at, error.message)
            continue
        if description is None or not description.rse or not protocols:
            yield _Unusable(at, f"{at} has no volume {volume!r} with an RSE and protocol {element.get('protocol')!r}")
        else:
            yield from (Method(description, protocol, element.get("command", ""), options) for protocol in protocols)


def _described(root: Path, site: str, place: Path) -> Iterator[Method]:
    for entry in _entries(root, site, place):
        if (entry.raw.get("type") or "DISK") != "DISK":
            continue  # whatever else is wrong with it
        description = _description(entry, site)
        # a virtual one only makes names for others
        writable = [each for each in description.protocols if each.access != "virtual" and not each.access.endswith("-ro")]
        if description.rse and writable:
            yield from (Method(description, protocol) for protocol in writable)
            return


def _old_fallback(config: ElementTree.Element | None) -> Iterator[Method]:
    """``<fallback-stage-out>``, of configurations from before ``<stage-out>``: a prefix and an RSE."""
    fallback = config.find("fallback-stage-out") if config is not None else None
    if fallback is None:
        return
    values = {element.tag: element.get("value", "") for element in fallback}
    rse, prefix = values.get("phedex-node"), values.get("lfn-prefix")
    if rse and prefix:
        protocol = Protocol("fallback", "", prefix, ())
        yield Method(
            Description(rse, "", "DISK", rse, (protocol,)), protocol, values.get("command", ""), _options(values.get("option"))
        )


def _options(text: str | None) -> tuple[str, ...]:
    words = re.sub(r"(^|\s)--wma-preload\s+\S+", " ", text or "").split()  # the one of them that has an argument
    return tuple(word for word in words if not word.startswith(_NO_OPTIONS))


def _given() -> Path | None:
    """The directory of this worker node's site, or of its part of one, as a pilot names it; PayloadError when it is not there."""
    named = os.environ.get("SITECONFIG_PATH")
    if named and not Path(named).is_dir():
        raise PayloadError(codes.STORAGE_UNUSABLE, f"SITECONFIG_PATH={named} is not there: the pilot describes this site by it")
    return Path(named).resolve() if named else None  # what is above a part of a site is where a link to it leads


def _entries(root: Path, site: str, place: Path) -> Iterator[Value]:
    """The volumes of a site as they are written, nearest first: in ``storage.json`` beside the JobConfig in ``place`` or above
    it, where a part of a site may have its own; then the site's. On a worker node ``local`` may be all that is there of its own
    site."""
    own = [each for each in (place, place / "..") if _describes(each / "storage.json", site)]
    places = [each / "storage.json" for each in (*own, root / site, root / "local", root / "local" / "..")]
    for path in [each for each in places if each.is_file()] or places[:1]:
        try:
            document = Value(json.loads(path.read_text(encoding="utf-8")), str(path))
            found = [item for item in document.items() if isinstance(item.raw, dict) and item.raw.get("site") == site]
        except (OSError, ValueError, PayloadError) as error:
            text = f"storage description of {site} cannot be read: {path}: {error}"
            raise PayloadError(codes.STORAGE_UNUSABLE, text) from error
        yield from found


def _description(entry: Value, site: str) -> Description:
    try:
        return read(entry, Description)
    except PayloadError as error:
        text = f"storage description of {site} cannot be read: {error}"
        raise PayloadError(codes.STORAGE_UNUSABLE, text) from error


def _describes(path: Path, site: str) -> bool:
    try:
        return f'"{site}"'.encode() in path.read_bytes()
    except OSError:
        return False


def _job_config(root: Path, site: str) -> tuple[str, ElementTree.Element | None, Path]:
    """``<site>`` of the ``site-local-config.xml`` that holds here, its name and its place: what a pilot names counts, whichever
    site that is of; else that of the worker node, which may be of a subsite, or the site's."""
    given = _given()
    named = None if given is None else _config_at(given)
    if given is not None and named is not None:
        return named.get("name", site), named, given
    for place in (root / "local", root / site):
        element = _config_at(place)
        if element is not None and element.get("name") == site:
            return site, element, place
    return site, None, given or root / site


def _config_at(place: Path) -> ElementTree.Element | None:
    path = place / "JobConfig" / "site-local-config.xml"
    try:
        return ElementTree.parse(path).getroot().find("site")  # noqa: S314  expat fetches nothing
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ElementTree.ParseError) as error:
        raise PayloadError(codes.STORAGE_UNUSABLE, f"{path} cannot be read: {error}") from error
