"""The adapters of this process, built once from ``wms2.conf``. Everything outside is reached through these functions.

There is no switch to a fake: another service is chosen by its URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wms2.adapters.configcache import SERVICE as CONFIGCACHE
from wms2.adapters.configcache import ConfigCache, couch_fault
from wms2.adapters.cric import SERVICE as CRIC
from wms2.adapters.cric import Cric
from wms2.adapters.dbs import Dbs
from wms2.adapters.htcondor import HtcondorAdapter
from wms2.adapters.http import Credentials, FaultParser, HttpService, plain_fault
from wms2.adapters.issuers import SERVICE as ISSUER
from wms2.adapters.issuers import keys_at_url, keys_in_file
from wms2.adapters.mspileup import SERVICE as MSPILEUP
from wms2.adapters.mspileup import MSPileup
from wms2.adapters.reqmgr2 import SERVICE as REQMGR2
from wms2.adapters.reqmgr2 import ReqMgr2, reqmgr2_fault
from wms2.adapters.rucio import RucioAdapter
from wms2.adapters.rucio_session import read_config
from wms2.adapters.ssb import SERVICE as SSB
from wms2.adapters.ssb import Ssb
from wms2.adapters.wmstats import SERVICE as WMSTATS
from wms2.adapters.wmstats import WMStats
from wms2.conf import JobCredential, conf
from wms2.errors import ConfigurationError
from wms2.runtime.credentials import Credential

#: A call over REST waits for an issuer's keys while they are read.
_KEYS_SECONDS = 5.0
#: Scope of all datasets, blocks and files.
RUCIO_SCOPE = "cms"


@cache
def reqmgr2() -> ReqMgr2:
    """ReqMgr2 at ``reqmgr2_url``, with the CouchDB of the same host."""
    host = urlsplit(conf().reqmgr2_url)
    return ReqMgr2(
        _http(REQMGR2, conf().reqmgr2_url, reqmgr2_fault),
        _http(REQMGR2, f"{host.scheme}://{host.netloc}/couchdb", couch_fault),
    )


@cache
def wmstats() -> WMStats:
    """WMStats at ``wmstats_url``."""
    return WMStats(_http(WMSTATS, conf().wmstats_url, reqmgr2_fault))


@cache
def configcache() -> ConfigCache:
    """The allowed ConfigCaches that documents name, or the one at ``configcache_url``."""
    settings = conf()
    return ConfigCache(
        lambda url: _http(CONFIGCACHE, url, couch_fault), settings.configcache_url, allowed=settings.configcaches_allowed
    )


@cache
def dbs() -> Dbs:
    """DBS at ``dbs_reader_url`` and ``dbs_writer_url``."""
    settings = conf()
    return Dbs(
        settings.dbs_reader_url,
        settings.dbs_writer_url,
        timeout_seconds=settings.service_timeout_seconds,
        credentials=_credentials(),
    )


@cache
def cric() -> Cric:
    """CRIC at ``cric_url``."""
    return Cric(_http(CRIC, conf().cric_url, plain_fault))


@cache
def ssb() -> Ssb:
    """The Site Status Board's feed at ``site_status_url``."""
    return Ssb(_http(SSB, conf().site_status_url, plain_fault))


@cache
def mspileup() -> MSPileup | None:
    """MSPileup at ``mspileup_url``; None without one."""
    return MSPileup(_http(MSPILEUP, conf().mspileup_url, plain_fault)) if conf().mspileup_url else None


def issuer_keys(place: str) -> Callable[[], list[dict[str, Any]]]:
    """What reads the key set of a token issuer, at a URL or an absolute path; it is public, so no credential of ours is shown."""
    if place.startswith("/"):
        return partial(keys_in_file, Path(place))
    host = f"{urlsplit(place).scheme}://{urlsplit(place).netloc}"
    seconds = min(_KEYS_SECONDS, conf().service_timeout_seconds)
    http = HttpService(ISSUER, host, timeout_seconds=seconds, credentials=Credentials(ca_path=conf().ca_path))
    return partial(keys_at_url, http, place.removeprefix(host))


@cache
def rucio() -> RucioAdapter:
    """Rucio by the client configuration in ``rucio_home``."""
    settings = conf()
    return RucioAdapter(settings.rucio_home, settings.rucio_account, RUCIO_SCOPE, settings.service_timeout_seconds)


@cache
def htcondor(schedd_name: str, collector: str, token_dir: str = "", owner: str = "") -> HtcondorAdapter:
    """One schedd; without a token directory of its pool, the configured one; without the owner of our jobs there it is asked."""
    settings = conf()
    return HtcondorAdapter(
        schedd_name,
        collector,
        instance=settings.instance,
        owner=owner,
        token_dir=token_dir or settings.condor_token_dir,
        timeout_seconds=settings.service_timeout_seconds,
        submit_timeout_seconds=settings.submit_timeout_seconds,
    )


def job_credential() -> Credential | None:
    """What jobs carry."""
    settings = conf()
    if settings.job_credential is JobCredential.NONE:
        return None
    is_token = settings.job_credential is JobCredential.TOKEN
    name = f"jobs_{settings.job_credential}"
    return Credential(name, "WMS2_JOB_CREDENTIAL_PATH", settings.job_credential_path, is_token=is_token)


def pool_credentials(token_dir: str) -> list[Credential]:
    """Tokens of a pool; of the configured directory where it has none of its own."""
    directory = token_dir or conf().condor_token_dir
    paths = sorted(Path(directory).glob("*")) if directory else []
    setting = "a pool's token_dir" if token_dir else "WMS2_CONDOR_TOKEN_DIR"
    return [Credential(f"htcondor_{path if token_dir else path.name}", setting, str(path), is_token=True) for path in paths]


def all_credentials(token_dirs: Iterable[str] = ()) -> list[Credential]:
    """Every file by which this installation identifies itself to services, also in the ``token_dirs`` of pools. Wrong
    configuration of Rucio is reported by its own calls."""
    settings = conf()
    found = [_credentials().certificate, _credentials().token, job_credential()]
    with suppress(ConfigurationError):
        found.append(read_config(settings.rucio_home, settings.rucio_account).certificate)
    for directory in ("", *sorted(set(token_dirs) - {"", settings.condor_token_dir})):
        found += pool_credentials(directory)
    return [each for each in found if each is not None]


def _credentials() -> Credentials:
    settings = conf()
    cert, token = settings.x509_cert, settings.service_token
    return Credentials(
        certificate=Credential("services", "WMS2_X509_CERT", cert, settings.x509_key) if cert else None,
        token=Credential("services_token", "WMS2_SERVICE_TOKEN", token, is_token=True) if token else None,
        ca_path=settings.ca_path,
    )


def _http(service: str, base_url: str, fault_parser: FaultParser) -> HttpService:
    return HttpService(
        service,
        base_url,
        timeout_seconds=conf().service_timeout_seconds,
        credentials=_credentials(),
        fault_parser=fault_parser,
    )
