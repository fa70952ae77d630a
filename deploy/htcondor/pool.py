"""Configuration and credentials of the loopback pool.

Owns the pool directory: the generated part of the configuration (paths, port, sites, the environment given to jobs; its form
is ``config/condor_config``), copies of the static part in ``config/``, the signing key and the client token. Starting and
stopping the daemons belongs to ``deploy/stack``. The whole pool runs as the user who owns the directory; no daemon runs as root.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.htcondor.sites import SITES
from deploy.stack.errors import StackError
from deploy.stack.identity import write_private

CONFIG = Path(__file__).resolve().parent / "config"
#: What jobs of some sites run in.
NODE = Path(__file__).resolve().parent / "node"
DOMAIN = "wms2.local"
# HTCondor's own names below LOCAL_DIR. Its sockets are abstract ones (DAEMON_SOCKET_DIR = auto): no path to be too long.
SUBDIRECTORIES = ("log", "spool", "execute", "lock", "run", "config.d")
PRIVATE_SUBDIRECTORIES = ("tokens.d", "passwords.d", "client-tokens")


class PoolError(StackError):
    """The pool cannot be configured; the message says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """An installed HTCondor: where its programs are and which version they are."""

    bin: Path
    sbin: Path
    libexec: Path
    lib: Path
    share: Path
    version: str

    @property
    def path(self) -> str:
        """The directories a client needs on PATH."""
        return f"{self.bin}:{self.sbin}"


def _version(condor_version: Path) -> str:
    # CONDOR_CONFIG=ONLY_ENV: no configuration of the host is read, none needs to exist.
    environment = {**os.environ, "CONDOR_CONFIG": "ONLY_ENV"}
    result = subprocess.run([str(condor_version)], env=environment, capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"CondorVersion: (\d+\.\d+\.\d+)", result.stdout)
    if not found:
        raise PoolError(f"{condor_version} does not say its version: {(result.stdout + result.stderr).strip()[:200]!r}")
    return found.group(1)


def release_in_prefix(prefix: Path) -> Release:
    """The release laid out by ``deploy.htcondor.install``."""
    usr = prefix / "usr"
    version = _version(usr / "bin/condor_version")
    return Release(usr / "bin", usr / "sbin", usr / "libexec/condor", usr / "lib/condor", usr / "share/condor", version)


def release_on_path(path: str) -> Release | None:
    """An HTCondor the machine already has, found by its ``condor_master`` on ``path``."""
    master = shutil.which("condor_master", path=path)
    tool = shutil.which("condor_version", path=path)
    if master is None or tool is None:
        return None
    sbin = Path(master).resolve().parent
    base = sbin.parent
    libexec = next((d for d in (base / "libexec/condor", base / "libexec", base / "lib/condor/libexec") if d.is_dir()), None)
    if libexec is None:
        raise PoolError(f"{master} is on PATH but {base} has no libexec directory beside it: take it off PATH or repair it")
    lib = next((d for d in (base / "lib/condor", base / "lib64/condor", base / "lib") if d.is_dir()), base / "lib")
    return Release(Path(tool).resolve().parent, sbin, libexec, lib, base / "share/condor", _version(Path(tool)))


@dataclass(frozen=True, slots=True)
class Pool:
    """Everything the configuration of one pool depends on."""

    directory: Path
    release: Release
    port: int
    user: str
    job_environment: Mapping[str, str]
    #: Jobs that run at once; None: as many as there are slots.
    most_running_jobs: int | None = None
    name: str = "wms2"

    @property
    def config_file(self) -> Path:
        return self.directory / "condor_config"

    @property
    def client_token_directory(self) -> Path:
        return self.directory / "client-tokens"

    @property
    def collector(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def schedd_name(self) -> str:
        return f"schedd@{self.name}.local"

    def environment(self) -> dict[str, str]:
        """What a client or daemon of this pool needs in its environment, besides PATH."""
        return {"CONDOR_CONFIG": str(self.config_file)}


def _job_environment(variables: Mapping[str, str]) -> str:
    """HTCondor's environment syntax: one double-quoted string of space-separated, single-quotable assignments."""
    for name, value in variables.items():
        if re.search(r"""["'\n]""", value):
            raise PoolError(f"{name}={value!r} cannot be given to jobs: quotes and line breaks are not allowed")
    return '"' + " ".join(f"{name}='{value}'" for name, value in variables.items()) + '"'


def _slots() -> list[str]:
    share = 100 // len(SITES)
    lines = [
        f"NUM_CPUS = {sum(site.cpus for site in SITES)}",
        f"MEMORY = {sum(site.memory_mb for site in SITES)}",
        "ARCH = X86_64",  # what requests are built for; whatever this machine is, the programs are simulated
        "STARTD_ATTRS = GLIDEIN_CMSSite, GLIDEIN_Site, GLIDEIN_REQUIRED_OS",
    ]
    for number, site in enumerate(SITES, start=1):
        lines += [
            f"SLOT_TYPE_{number} = cpus={site.cpus}, mem={share}%, disk={share}%, swap={share}%",
            f"SLOT_TYPE_{number}_PARTITIONABLE = True",
            f"NUM_SLOTS_TYPE_{number} = 1",
            f'SLOT_TYPE_{number}_GLIDEIN_CMSSite = "{site.cms_name}"',
            f'SLOT_TYPE_{number}_GLIDEIN_Site = "{site.short_name}"',
        ]
        if site.container:
            lines.append(f'SLOT_TYPE_{number}_GLIDEIN_REQUIRED_OS = "{site.container}"')
    return lines


def render(pool: Pool) -> str:
    """The generated configuration file; the static files of ``config/`` are read after it."""
    bounded = f"MAX_JOBS_RUNNING = {pool.most_running_jobs}\n" if pool.most_running_jobs else ""
    slots, jobs = "\n".join(_slots()), _job_environment(pool.job_environment)
    form = (CONFIG / "condor_config").read_text()
    return form.format(pool=pool, release=pool.release, bounded=bounded, slots=slots, job_environment=jobs)


def configure(pool: Pool) -> None:
    """Write the pool directory and the clients' token; repeatable, keeps the queue, the keys and ``config.d/90-local.conf``."""
    for name in SUBDIRECTORIES:
        (pool.directory / name).mkdir(parents=True, exist_ok=True)
    for name in PRIVATE_SUBDIRECTORIES:
        (pool.directory / name).mkdir(mode=0o700, exist_ok=True)
    for source in sorted(CONFIG.glob("*.conf")):
        shutil.copyfile(source, pool.directory / "config.d" / source.name)
    configure_node(pool.directory / "node")
    key = pool.directory / "passwords.d/POOL"
    if not key.exists():
        write_private(key, base64.b64encode(secrets.token_bytes(64)).decode())
    pool.config_file.write_text(render(pool))
    _create_client_token(pool)


def configure_node(target: Path) -> None:
    """What stands between the starter and a job: the container of some sites, and its python3."""
    (target / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(NODE / "glidein", target)
    shutil.copy(NODE / "python3", target / "bin")


def _create_client_token(pool: Pool) -> None:
    """Give clients an IDTOKEN for the pool's user, needed by the PyPI bindings against 23.9. Asks no daemon."""
    target = pool.client_token_directory / "wms2"
    if target.exists():
        return
    command = [str(pool.release.bin / "condor_token_create"), "-identity", f"{pool.user}@{DOMAIN}"]
    environment = {**os.environ, **pool.environment()}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    if result.returncode != 0:
        raise PoolError(f"condor_token_create failed: {result.stderr.strip()}")
    write_private(target, result.stdout)
