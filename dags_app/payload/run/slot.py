"""Where a payload job runs: what HTCondor's job ad and machine ad say, and the host. Owns the ClassAd names read there.

HTCondor writes both ads as text files and names them in ``_CONDOR_JOB_AD`` and ``_CONDOR_MACHINE_AD``.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ..contract import codes, files
from ..contract.codes import PayloadError
from ..contract.layout import FENCE_ATTRIBUTE, SITE_ATTRIBUTE, UNIT_ATTRIBUTE
from ..contract.packed import JOB_AD, MACHINE_AD
from ..contract.reports import Slot
from .processes import MEMORY_MARGIN, Bounds

_TELLING = re.compile(
    r"(CMS|SCRAM|SITECONF|VO_CMS|GLIDEIN|OSG|SINGULARITY|APPTAINER|WMS2|XRD|OMP|LC)_?[A-Z_]*|LANG|PATH|(PYTHON|LD_LIBRARY_)PATH"
    r"|TMPDIR|HOME|X509_CERT_DIR|_CONDOR_(SLOT|SCRATCH_DIR)"
)
_SECRET = re.compile("TOKEN|SECRET|PASS|KEY|CRED|PROXY|AUTH")
#: Attributes that are not shown: claim ids give a right to the slot, capabilities one to the job's files.
_PRIVATE = (b"ClaimId", b"ClaimIds", b"Capability", b"TransferKey", b"ChildClaimIds", b"PairedClaimId")
_OS_RELEASE, _REDHAT_RELEASE = Path("/etc/os-release"), Path("/etc/redhat-release")
_NUMBER = re.compile(r"\d+(\.\d*)?")
_LINE = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)


def read_ad(path: Path) -> dict[str, str]:
    """Attributes of a ClassAd in HTCondor's line form; strings without their quotes, other values as written."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return {name: value[1:-1] if value.startswith('"') else value for name, value in _LINE.findall(text)}


def read_slot() -> Slot:
    """The slot of this process; PayloadError when it does not run under HTCondor or an attribute is missing."""
    job, machine = _ad("_CONDOR_JOB_AD"), _ad("_CONDOR_MACHINE_AD")
    global_id = job.get("GlobalJobId", "")
    return Slot(
        site=_need(machine, SITE_ATTRIBUTE, "machine ad: the site must advertise it"),
        host=socket.gethostname(),
        job_id=f"{_need(job, 'ClusterId', 'job ad')}.{_need(job, 'ProcId', 'job ad')}",
        schedd=global_id.split("#")[0] or None,
        unit=_need(job, UNIT_ATTRIBUTE, "job ad: the submit file must set My.WMS2_Unit"),
        fence=int(_need(job, FENCE_ATTRIBUTE, "job ad: fence.dag.inc must be included by the DAG")),
        execution=uuid4().hex,
    )


class Granted(NamedTuple):
    """What the slot has for the job; None: the ads do not say."""

    cores: int | None = None
    memory_mb: int | None = None


def read_granted() -> Granted:
    """The slot's cores and memory, or what the job asked for where that is less: HTCondor limits a job by either."""
    job, machine = _ad("_CONDOR_JOB_AD"), _ad("_CONDOR_MACHINE_AD")
    return Granted(_least(machine.get("Cpus"), job.get("RequestCpus")), _least(machine.get("Memory"), job.get("RequestMemory")))


def read_system() -> str:
    """The system this runs in, as glideins call it (rhel8): what the slot promises, else what is installed; empty: unknown."""
    ad = os.environ.get("_CONDOR_MACHINE_AD", "")
    machine = read_ad(Path(ad)) if os.access(ad, os.R_OK) else {}
    promised = machine.get("GLIDEIN_REQUIRED_OS", "")
    if re.fullmatch(r"rhel\d+", promised):  # one alone: "any" and lists leave the choice to the job
        return promised
    text = files.read_text(_OS_RELEASE)
    here = {name: value.strip("\"'") for name, value in re.findall(r"(?m)^(\w+)=(.*)$", text)}
    number = here.get("VERSION_ID", "").partition(".")[0]
    if number and re.search(r"\b(rhel|centos|fedora)\b", f"{here.get('ID')} {here.get('ID_LIKE')}"):
        return f"rhel{number}"
    old = re.search(r" release (\d+)", files.read_text(_REDHAT_RELEASE))  # of systems from before os-release
    old = old or re.match(r"(?i)(?:alma|centos|redhat|rocky|scientific|sl)[a-z]*(\d+)", machine.get("OpSysAndVer", ""))
    return f"rhel{old[1]}" if old else f"{here.get('ID', '')}{number}"


def read_bounds() -> Bounds:
    """What the job itself has to watch: its memory where no cgroup ends what takes more, and the wall time that it asked for."""
    asked, granted_mb = _ad("_CONDOR_JOB_AD").get("MaxWallTimeMins", ""), read_granted().memory_mb
    enforced_mb = cgroup_limit_mb()
    if granted_mb is not None and enforced_mb is not None and enforced_mb <= granted_mb * MEMORY_MARGIN:
        granted_mb = None
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    age_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return Bounds(granted_mb, float(asked) if _NUMBER.fullmatch(asked) else None, age_seconds)


def _least(*texts: str | None) -> int | None:
    """The smallest of those that are whole numbers; a job may ask by an expression."""
    return min((int(text) for text in texts if text and text.isdigit()), default=None)


def environment() -> str:
    """What explains failures about this host and process. Of the variables only known ones, and none that may hold a secret."""
    disk = shutil.disk_usage(".")
    reporting = {
        name: value for name, value in sorted(os.environ.items()) if _TELLING.fullmatch(name) and not _SECRET.search(name)
    }
    facts = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "disk free": f"{disk.free // 2**20} of {disk.total // 2**20} MB",
        "user": f"{os.getuid()}:{os.getgid()}",
    }
    return "".join(f"{name}: {value}\n" for name, value in facts.items()) + "".join(f"{n}={v}\n" for n, v in reporting.items())


def ads() -> list[tuple[str, bytes]]:
    """Both ads as HTCondor wrote them, by the names they have in an attempt's packed logs; those that are there."""
    found = []
    for name, variable in ((JOB_AD, "_CONDOR_JOB_AD"), (MACHINE_AD, "_CONDOR_MACHINE_AD")):
        path = os.environ.get(variable, "")
        if path and Path(path).is_file():
            lines = Path(path).read_bytes().splitlines(keepends=True)
            found.append((name, b"".join(line for line in lines if not line.split(b" ", 1)[0].endswith(_PRIVATE))))
    return found


def _ad(variable: str) -> dict[str, str]:
    path = os.environ.get(variable)
    if not path or not Path(path).is_file():
        raise PayloadError(
            codes.INVALID_DOCUMENT, f"{variable} does not name a file: this command runs inside an HTCondor job, nowhere else"
        )
    return read_ad(Path(path))


def _need(ad: dict[str, str], name: str, where: str) -> str:
    if name not in ad or ad[name] in ("", "undefined"):
        raise PayloadError(codes.INVALID_DOCUMENT, f"{name} is not in the {where}")
    return ad[name]


def cgroup_peak_mb() -> int | None:
    """Peak memory of this job's own cgroup in MB; None when HTCondor gave the job none."""
    for path, unified in _cgroups():
        if "condor" in str(path):
            return _number_mb(path / ("memory.peak" if unified else "memory.max_usage_in_bytes"))
    return None


def cgroup_limit_mb() -> int | None:
    """Memory in MB above which the kernel ends this job or what runs beside it; None where there is no such limit."""
    limits = (
        _number_mb(each / ("memory.max" if unified else "memory.limit_in_bytes"))
        for path, unified in _cgroups()
        for each in (path, *path.parents)
    )
    return min((limit for limit in limits if limit is not None), default=None)


def _cgroups() -> Iterator[tuple[Path, bool]]:
    """This process's cgroups that account for memory, and whether each is of the unified kind."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in groups:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield Path("/sys/fs/cgroup" + path), True
        elif "memory" in controllers.split(","):
            yield Path("/sys/fs/cgroup/memory" + path), False


def _number_mb(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="utf-8")) // (1024 * 1024)
    except (OSError, ValueError):  # not there, or "max"; no reason to lose the report
        return None
