"""As whom a job speaks to storage: its token and its proxy, found inside a container, and whether they last for the job.

HTCondor names what it has put beside a job by paths of the host. In a container the scratch directory lies elsewhere, and only
some of these variables are translated; here all of them are, for this process and its children. What a credential holds is never
printed.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

from ..contract import codes
from ..contract.codes import PayloadError
from .slot import read_ad

TOKEN, TOKEN_FILE, PROXY = "BEARER_TOKEN", "BEARER_TOKEN_FILE", "X509_USER_PROXY"
_JOB_AD, _SCRATCH, _SERVICE = "_CONDOR_JOB_AD", "_CONDOR_SCRATCH_DIR", "_CONDOR_CREDS"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d|\x18\x0f)(\d{12,14})Z"  # UTCTime, GeneralizedTime
#: ``Validity`` in DER, of certificates and of the VOMS attributes in a proxy.
_VALIDITY = re.compile(_TIME + _TIME)


def find(directory: Path) -> None:
    """Have variables that name what is not there name the same in the scratch ``directory``; and BEARER_TOKEN_FILE a token.

    Where none is named: that of the pool's credential service, CMS's before others, then as WLCG has it discovered.
    """
    if _SCRATCH in os.environ:
        os.environ[_SCRATCH] = str(directory)
    for name in (_JOB_AD, "_CONDOR_MACHINE_AD", _SERVICE, PROXY, TOKEN_FILE):
        named = os.environ.get(name, "")
        inside = directory / Path(named).name
        if named and (_named(name) or inside.exists()):
            os.environ[name] = str(directory / named if _named(name) else inside)  # children run in directories of their own
    if os.environ.get(TOKEN) or _named(TOKEN_FILE) or _job().get("x509userproxy"):  # with its own it needs no token of others
        return
    service, user = Path(os.environ.get(_SERVICE) or directory / ".condor_creds"), f"bt_u{os.geteuid()}"
    places = [service / "cms.use", *sorted(service.glob("*.use")), Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / user]  # noqa: S108
    found = next((path for path in (*places, Path("/tmp") / user) if os.access(path, os.R_OK)), None)  # noqa: S108
    if found is not None:
        os.environ[TOKEN_FILE] = str(found)


def token() -> str:
    """The bearer token; empty where there is none."""
    file = _named(TOKEN_FILE)
    held = file.read_text(encoding="ascii", errors="replace") if file and file.is_file() else ""
    return (os.environ.get(TOKEN) or held).strip()


def wall_seconds() -> float:
    """For how long the job may run as it asked for; 0 where its ad does not say."""
    minutes = _job().get("MaxWallTimeMins", "")
    return float(minutes) * 60 if minutes.isdigit() else 0.0


def check(seconds: float) -> None:
    """PayloadError when what the job is given cannot be found, or ends sooner than in ``seconds``.

    What HTCondor renews while the job runs has to be good now: a proxy that it carries, and what a credential service brings.
    """
    job = _job()
    bearer, file, proxy = token(), _named(TOKEN_FILE), _named(PROXY)
    sent = TOKEN_FILE in job.get("Environment", "") + job.get("Env", "")
    ours = ((TOKEN_FILE, sent, bearer), (PROXY, "x509userproxy" in job, proxy))  # a pilot's own is not needed
    lost = [f"{name}={os.environ[name]}" for name, came, found in ours if came and os.environ.get(name) and not found]
    if lost and not (bearer or (proxy and not sent)):
        there = "is empty or no file" if any(map(_named, (TOKEN_FILE, PROXY))) else "is not there"
        text = f"{', '.join(lost)} {there}, nor is a file of that name in the job's directory: its credential did not come"
        raise PayloadError(codes.CREDENTIAL_UNUSABLE, text)
    if bearer and (sent or not proxy):
        renewed = file is not None and file.parent.name == Path(os.environ.get(_SERVICE) or ".condor_creds").name
        _last("token", _token_ends_at(bearer), 0 if renewed else seconds)
    if proxy and ("x509userproxy" in job or not bearer):
        ends_at = _proxy_ends_at(proxy.read_text(encoding="ascii", errors="replace"))
        _last("proxy", ends_at, 0 if job.get("x509userproxy") else seconds)


def _job() -> dict[str, str]:
    ad = _named(_JOB_AD)
    return read_ad(ad) if ad else {}


def _named(variable: str) -> Path | None:
    """What a variable names, where that can be read."""
    path = os.environ.get(variable)
    return Path(path) if path and os.access(path, os.R_OK) else None


def _last(name: str, ends_at: float | None, seconds: float) -> None:
    if ends_at is None or not ends_at < time.time() + seconds:  # one that is no number either
        return
    ends = datetime.fromtimestamp(max(0.0, ends_at), timezone.utc)
    text = f"the job's {name} ends at {ends:%Y-%m-%d %H:%M:%S} UTC" + (
        f", the job asked for {seconds / 60:.0f} min" if seconds else ""
    )
    raise PayloadError(codes.CREDENTIAL_UNUSABLE, f"{text}: it could not stage out. Its retry carries the file as it is then")


def _token_ends_at(bearer: str) -> float | None:
    """Unix seconds; None when it does not say."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(bearer.split(".")[1] + "=="))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _proxy_ends_at(pem: str) -> float | None:
    """When the first of its certificates and VOMS attributes ends."""
    try:
        found = [ends for each in _CERTIFICATE.findall(pem) for _, ends in _VALIDITY.findall(base64.b64decode(each))]
        formats = {12: "%y%m%d%H%M%S", 14: "%Y%m%d%H%M%S"}
        moments = [datetime.strptime(ends.decode(), formats[len(ends)]).replace(tzinfo=timezone.utc) for ends in found]
        return min((moment.timestamp() for moment in moments), default=None)
    except (KeyError, ValueError):
        return None
