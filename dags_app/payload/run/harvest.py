"""Harvesting DQM: one cmsRun over files of a DQMIO dataset, and the upload of what it saves to DQM servers (ADR 0020).

The servers take a form with ``size``, ``checksum`` and ``file`` at ``<url>/data/put``; headers of the answer say if they took
it (docs/design/services.md, DQM servers). Sent again it becomes another version. Owns both, and who the job says it is.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..contract import codes, names
from ..contract.codes import PayloadError
from ..contract.site_tasks import HarvestTask, Uploaded
from . import checks, credentials, fjr, psets, storage
from .cmssw import FRONTIER_ID, run_in_release
from .processes import stop_requests_as_errors
from .steps import exit_code_of, explain

_SAVED = "DQM_V*.root"
_TAKEN = "100"
#: CMSSW's run number of what is harvested from several runs, as CMS's agents set it.
_ALL_RUNS = 999_999
_LAST_LUMI = 2**32 - 1
_BOUNDARY = "WMS2-DQM-FILE-86c4f1d2a0b34e7f"
_CHUNK_BYTES, _TIMEOUT_SECONDS = 1 << 20, 600.0
_CERTIFICATES = "/etc/grid-security/certificates"


def harvest(directory: Path, task: HarvestTask) -> tuple[Uploaded, ...]:
    """Harvest and upload; PayloadError when cmsRun fails or saves nothing, or when a server does not take a file."""
    work = directory / "work"
    place = work / "harvest"
    shutil.rmtree(work, ignore_errors=True)
    place.mkdir(parents=True)
    psets.write_configuration(place, task.pset.encode(), _tweak(task))
    command = ["cmsRun", "-j", psets.FRAMEWORK_REPORT, psets.CONFIGURATION]
    with stop_requests_as_errors():
        (finished,) = run_in_release(command, task.release, task.scram_arch, [place], work, {FRONTIER_ID: f"wms2_{task.dataset}"})
        report = fjr.read_framework_report(place / psets.FRAMEWORK_REPORT)
        code = exit_code_of(finished, report)
        if code != codes.SUCCESS:
            raise PayloadError(code, explain(place, finished, report))
        checks.check_not_skipped(report, "harvesting")
        saved = sorted(place.glob(_SAVED))
        if not saved:
            raise PayloadError(codes.OUTPUT_NOT_FOUND, f"cmsRun ended well, but saved no {_SAVED}")
        uploads = tuple(_upload(path, url, task.upload_pauses_seconds) for path in saved for url in task.upload_urls)
    shutil.rmtree(work, ignore_errors=True)
    return uploads


def _tweak(task: HarvestTask) -> dict[str, Any]:
    lumis, workflow = [f"{run}:1-{run}:{_LAST_LUMI}" for run in task.runs], task.dataset
    if task.together:
        head, _, tier = task.dataset.rpartition("/")
        lumis, workflow = [], f"{head}-{task.runs[0]}-{task.runs[-1]}/{tier}"
    return {
        **psets.tweak_with(files=list(task.files), lumis=lumis, compare_guids=names.are_compared(task.files, task.release)),
        "outputs": {},
        "global_tag": task.global_tag,
        "threads": 1,
        "streams": 0,
        "seed": "",
        "dqm_saver": {"workflow": workflow, "run": _ALL_RUNS if task.together else 0},
    }


def _upload(path: Path, url: str, pauses_seconds: Sequence[float]) -> Uploaded:
    """Send a file, again after each of the pauses; PayloadError with the last answer."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK_BYTES), b""):
            md5.update(chunk)
    size, problem = path.stat().st_size, ""
    for wait in (0.0, *storage.pauses(pauses_seconds)):
        time.sleep(wait)
        try:
            answer = _sent(path, url, {"size": str(size), "checksum": f"md5:{md5.hexdigest()}"})
        except (OSError, http.client.HTTPException) as error:
            problem = str(error)
        else:
            return Uploaded(path.name, size, md5.hexdigest(), url, answer)
    raise PayloadError(codes.DQM_UPLOAD_FAILED, f"{url} did not take {path.name}: {problem}")


def _sent(path: Path, url: str, fields: dict[str, str]) -> str:
    """The server's words for a file that it has taken; OSError with them when it has not."""
    parts = [f'name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
    parts.append(f'name="file"; filename="{path.name}"\r\nContent-Type: application/octet-stream\r\n\r\n')
    head = "".join(f"--{_BOUNDARY}\r\nContent-Disposition: form-data; {part}" for part in parts).encode()
    tail = f"\r\n--{_BOUNDARY}--\r\n".encode()
    headers = {
        "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
        "Content-Length": str(len(head) + path.stat().st_size + len(tail)),
        "User-Agent": "WMS2",
    }
    if (token := credentials.token()) and url.startswith("https:"):  # never in the clear
        headers["Authorization"] = f"Bearer {token}"
    # http or https, as intake has it
    request = urllib.request.Request(f"{url}/data/put", _chunks(head, path, tail), headers)  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_tls()))
    try:
        answer = opener.open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        code, *words = (answer.headers.get(f"Dqm-Status-{name}") or "" for name in ("Code", "Message", "Detail"))
        said = f"HTTP {answer.status}, DQM status {code or 'not given'}: {'; '.join(filter(None, words))}"
    if code != _TAKEN:
        raise OSError(said)
    return said


def _chunks(head: bytes, path: Path, tail: bytes) -> Iterator[bytes]:
    yield head
    with path.open("rb") as stream:
        yield from iter(lambda: stream.read(_CHUNK_BYTES), b"")
    yield tail


def _tls() -> ssl.SSLContext:
    """With the job's proxy, if it carries one, and the certificates of grid authorities, where there are any."""
    known = os.environ.get("X509_CERT_DIR", _CERTIFICATES)
    context = ssl.create_default_context(capath=known if Path(known).is_dir() else None)
    proxy = os.environ.get("X509_USER_PROXY")
    if proxy:
        context.load_cert_chain(proxy)
    return context
