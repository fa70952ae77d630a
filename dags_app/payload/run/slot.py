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
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ..contract import codes, files
from ..contract.codes import PayloadError
from ..contract.layout import FENCE_ATTRIBUTE, SITE_ATTRIBUTE, UNIT_ATTRIBUTE
from ..contract.packed import JOB_AD, MACHINE_AD
from ..contract.reports import Slot

_TELLING = re.compile(
    r"(CMS|SCRAM|SITECONF|VO_CMS|GLIDEIN|OSG|SINGULARITY|APPTAINER|WMS2|XRD|OMP|LC)_?[A-Z_]*|LANG|PATH|(PYTHON|LD_LIBRARY_)PATH"
    r"|TMPDIR|HOME|X509_CERT_DIR|_CONDOR_(SLOT|SCRATCH_DIR)"
)
_SECRET = re.compile("TOKEN|SECRET|PASS|KEY|CRED|PROXY|AUTH")
_OS_RELEASE, _REDHAT_RELEASE = Path("/etc/os-release"), Path("/etc/redhat-release")
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


@dataclass(frozen=True)
class Granted:
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
    if re.search(r"\b(rhel|centos|fedora)\b", f"{here.get('ID')} {here.get('ID_LIKE')}"):
        return f"rhel{number}"
    old = re.search(r" release (\d+)", files.read_text(_REDHAT_RELEASE))  # of systems from before os-release
    old = old or re.match(r"(?i)(?:alma|centos|redhat|rocky|scientific|sl)[a-z]*(\d+)", machine.get("OpSysAndVer", ""))
    return f"rhel{old[1]}" if old else f"{here.get('ID', '')}{number}"


def _least(*texts: str | None) -> int | None:
    """The smallest of those that are whole numbers; a job may ask by an expression."""
    return min((int(text) for text in texts if text and text.isdigit()), default=None)


def environment() -> str:
    """What explains failures about this host and process. Of the variables only known ones, and none that may hold a secret."""
    disk = shutil.disk_usage(".")
    telling = {name: value for name, value in sorted(os.environ.items()) if _TELLING.fullmatch(name) and not _SECRET.search(name)}
    facts = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "disk free": f"{disk.free // 2**20} of {disk.total // 2**20} MB",
        "user": f"{os.getuid()}:{os.getgid()}",
    }
    return "".join(f"{name}: {value}\n" for name, value in facts.items()) + "".join(f"{n}={v}\n" for n, v in telling.items())


def ads() -> list[tuple[str, bytes]]:
    """Both ads as HTCondor wrote them, by the names they have in an attempt's packed logs; those that are there."""
    named = ((JOB_AD, os.environ.get("_CONDOR_JOB_AD", "")), (MACHINE_AD, os.environ.get("_CONDOR_MACHINE_AD", "")))
    return [(name, _public(Path(path).read_bytes())) for name, path in named if path and Path(path).is_file()]


def _public(ad: bytes) -> bytes:
    """Without what nobody else may know: claim ids give a right to the slot, capabilities one to the job's files."""
    secret = (b"ClaimId", b"ClaimIds", b"Capability", b"TransferKey", b"ChildClaimIds", b"PairedClaimId")
    return b"".join(line for line in ad.splitlines(keepends=True) if not line.split(b" ", 1)[0].endswith(secret))


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
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").split()
    except OSError:
        return None
    for line in groups:
        number, controllers, path = line.split(":", 2)
        if "condor" not in path:
            continue
        unified = number == "0" and not controllers
        base, name = ("/sys/fs/cgroup", "memory.peak") if unified else ("/sys/fs/cgroup/memory", "memory.max_usage_in_bytes")
        file = Path(base + path) / name
        if (unified or "memory" in controllers.split(",")) and file.is_file():
            try:
                return int(file.read_text(encoding="utf-8")) // (1024 * 1024)
            except (OSError, ValueError):
                return None  # no reason to lose the report
    return None
