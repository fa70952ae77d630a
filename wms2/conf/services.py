"""Settings of services outside: ReqMgr2, DBS, Rucio, CRIC, HTCondor, and what is shown to them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from wms2.conf.base import Base

#: An address with one place for a name.
LINK = r"^https?://[^{}\s]*\{\}[^{}\s]*$"
LINKED = ("reqmgr2", "mcm", "das", "rucio", "cric")


class JobCredential(StrEnum):
    """What jobs carry to prove who they are: nothing, an X.509 proxy, or a bearer token."""

    NONE, PROXY, TOKEN = "none", "proxy", "token"


class Services(Base):
    """Where services are and how they are called."""

    # --- Outside services
    reqmgr2_url: str = Field(pattern=r"^https?://")
    """Base of ReqMgr2's data service, `…/reqmgr2/data`."""
    team: str = Field("", pattern=r"^[A-Za-z0-9_.-]{0,100}$")
    """Our team in ReqMgr2: what `Team` says in documents that this installation runs. Those of other teams are refused,
    however they arrive. Empty: the team is not checked."""
    other_teams: bool = False
    """Whether documents of other teams may be imported by hand all the same, as in the demo. WMCore may run them too: never
    in production."""
    reqmgr2_follow: bool = False
    """Whether staged requests of our team are taken out of ReqMgr2, and what others do there to requests that came from
    there is done here (abort, force-complete, priority, site lists). Needs `team`; see docs/coexistence.md."""
    reqmgr2_report: bool = False
    """Whether the status and the amount of work of requests that came from ReqMgr2 are reported to it, and a clone is made
    there when one is restarted. Our certificate needs the role for it."""
    reqmgr2_take_staging: bool = False
    """Whether requests of our team that are `staging` are set to `staged` and `acquired` in one go as soon as their
    transfer document says what MSMonitor would go by: no transfers, or each complete to the campaign's `PartialCopy`.
    WMCore's work queue hardly sees them `staged` then. Needs `reqmgr2_follow`."""
    reqmgr2_poll_seconds: float = Field(60.0, ge=0.5)
    """Pause between two polls of ReqMgr2."""
    wmstats_url: str = Field("", pattern=r"^(https?://.*)?$")
    """Base of WMStats' data service, `…/wmstatsserver/data`. Where it is set, each request whose unmerged directories are
    not among its `protectedlfns` is alerted on (`unmerged_unprotected`): MSUnmerged may empty them. Empty: this is not
    checked."""
    configcache_url: str = ""
    """Replaces the `ConfigCacheUrl` of every document when set, e.g. by the simulator's."""
    configcache_allowed_urls: tuple[str, ...] = ()
    """ConfigCaches that documents may name as `ConfigCacheUrl`, separated by commas: what comes from there is code that
    runs at every site. Others are refused. Empty: `/couchdb` at the host of ReqMgr2. In production all begin with
    `https://`."""
    dbs_reader_url: str = Field(pattern=r"^https?://")
    """Base of the DBS reader, `…/dbs/prod/global/DBSReader`."""
    dbs_writer_url: str = Field(pattern=r"^https?://")
    """Base of the DBS writer, `…/dbs/prod/global/DBSWriter`."""
    dbs_tiers_with_digits: bool = False
    """Whether outputs may have data tiers with digits (`L1SCOUT`, `L1NANO`): true once the lexicon of that DBS takes
    datasets with such names. Input datasets may have them anyway."""
    cric_url: str = Field(pattern=r"^https?://")
    """Base of CRIC."""
    site_status_url: str = Field("", pattern=r"^(https?://.*)?$")
    """Feed of the Site Status Board: a JSON list of objects with `name` (or `site`) and `prod_status` (or `status`):
    `enabled`, `drain`, `test` or `disabled`. Read every ten minutes as actor `ssb`; what an operator has decided for a site
    holds until *Follow SSB*. Empty: sites are enabled until an operator says otherwise."""
    mspileup_url: str = Field("", pattern=r"^(https?://.*[^/])?$")
    """Base of MSPileup, `https://cmsweb.cern.ch/ms-pileup/data`: pileup is read only where it is kept on purpose, and of
    that what its `customName` holds. Empty: where rules in Rucio keep whole blocks on disk; every whole copy if no rule
    keeps any there."""
    rucio_home: Path
    """Directory with `etc/rucio.cfg` for the Rucio client."""
    rucio_account: str
    """Rucio account that owns the rules."""
    x509_cert: str = ""
    """Client certificate or proxy for ReqMgr2, ConfigCache, DBS and CRIC, in PEM; empty for none. This and all other
    credentials are read at each use: a renewed file counts from the next call on."""
    x509_key: str = ""
    """Its key, when it is in a file of its own."""
    service_token: str = ""
    """File of a bearer token for the same services, which then have to be asked by https; empty for none."""
    ca_path: str = ""
    """File or directory of certificate authorities; empty for the system's."""
    releases_map: Path | None = None
    """CMS's list of releases, `/cvmfs/cms.cern.ch/releases.map`: jobs ask for the x86-64 level that it names."""
    job_credential: JobCredential = JobCredential.NONE
    """What jobs carry to storage: `none`, `proxy` (HTCondor's `x509userproxy`; commands find it by `X509_USER_PROXY`) or
    `token` (a file that goes with each job; commands find it by `BEARER_TOKEN_FILE`). A change counts for what is submitted
    from then on."""
    job_credential_path: str = Field("", pattern=r"^(/[A-Za-z0-9_.@+/-]+)?$")
    """Its file, absolute, at the schedds' hosts and here, readable for the jobs' owner alone."""
    schedd_name: str
    """The schedd that DAGs are given to, by its name in the collector."""
    collector: str
    """The pool's collector, `host:port`."""
    condor_token_dir: str = ""
    """Directory of IDTOKENs for the schedd; empty for the HTCondor configuration's own methods."""
    accounting_group: str = Field("", pattern=r"^[A-Za-z0-9_.-]*$")
    """HTCondor's accounting group of all jobs, in CMS `production`; empty for none."""
    accounting_group_user: str = Field("", pattern=r"^[A-Za-z0-9_.@-]*$")
    """The user that the group's jobs are counted to, in CMS `cmsdataops`; empty for their owner."""
    io_slots: bool = False
    """Merge and cleanup jobs ask for an I/O slot of their pilot (`Requestioslots`), as WMAgent's, and take no CPU slot.
    HTCondor then demands such slots of every machine: only where all sites run CMS's pilots."""
    role_names: dict[str, Literal["viewer", "requester", "site admin", "operator", "admin"]] = Field({})
    """JSON object: what the front end, single sign-on and tokens call a role or group -> `viewer`, `requester`, `site admin`,
    `operator` or `admin`. Names that are not in it give nothing."""
    flower_url: str = Field("", pattern=r"^(https?://.*)?$")
    """Where Flower shows the Celery workers, at the host name of the pages, so that it is sent their session. They link to
    it for operators; empty: there is no link."""
    links: dict[str, Annotated[str, Field(pattern=LINK)]] = Field({})
    """JSON object: what pages link to -> its address, `{}` in place of the name; others have no link. In CMS `reqmgr2`,
    of a request, is `https://cmsweb.cern.ch/reqmgr2/fetch?rid={}`; `mcm`, of a prep id,
    `https://cms-pdmv-prod.web.cern.ch/mcm/requests?prepid={}`; of a dataset, block or file `das`,
    `https://cmsweb.cern.ch/das/request?input={}`, and `rucio`, `https://cms-rucio-webui.cern.ch/did?scope=cms&name={}`; `cric`,
    of a site, `https://cms-cric.cern.ch/cms/site/detail/{}/`."""
    service_timeout_seconds: float = Field(30.0, gt=0)
    """Limit of one call to an outside service, for each try."""
    submit_timeout_seconds: float = Field(60.0, gt=0)
    """Limit of one submission. When it is over, the outcome is unknown and is searched for."""

    @model_validator(mode="after")
    def _credentials_make_sense(self) -> Self:
        if (self.job_credential is not JobCredential.NONE) != bool(self.job_credential_path):
            raise ValueError("WMS2_JOB_CREDENTIAL_PATH: it is set when WMS2_JOB_CREDENTIAL is proxy or token, and only then")
        services = "reqmgr2 wmstats dbs_reader dbs_writer cric site_status mspileup"
        for name in (f"{service}_url" for service in services.split()):
            if self.service_token and getattr(self, name) and not getattr(self, name).startswith("https://"):
                raise ValueError(f"WMS2_SERVICE_TOKEN: it would be sent in the clear to WMS2_{name.upper()}, which is not https")
        return self

    @model_validator(mode="after")
    def _links_are_known(self) -> Self:
        if strange := sorted(set(self.links) - set(LINKED)):
            raise ValueError(f"WMS2_LINKS: {strange[0]} is unknown; known: {', '.join(LINKED)}")
        return self

    @property
    def configcaches_allowed(self) -> tuple[str, ...]:
        """ConfigCaches that documents may name."""
        host = urlsplit(self.reqmgr2_url)
        return self.configcache_allowed_urls or (f"{host.scheme}://{host.netloc}/couchdb",)

    @model_validator(mode="after")
    def _team_is_named(self) -> Self:
        """Following ReqMgr2 takes requests away from all others there."""
        if self.reqmgr2_follow and not self.team:
            raise ValueError("WMS2_TEAM: name the team of ReqMgr2 to take requests of, or do not set WMS2_REQMGR2_FOLLOW")
        return self

    @model_validator(mode="after")
    def _code_comes_encrypted(self) -> Self:
        """PSets are code that runs at all sites: in production none is taken from a connection that others can write into."""
        safe = ("https",) if self.environment == "production" else ("https", "http")
        named = [("URL", self.configcache_url)] if self.configcache_url else []
        for name, url in [*named, *(("ALLOWED_URLS", url) for url in self.configcaches_allowed)]:
            try:
                known = urlsplit(url).port != 0 and urlsplit(url).scheme in safe
            except ValueError:
                known = False
            if not known:
                raise ValueError(f"WMS2_CONFIGCACHE_{name}: ConfigCache has to be asked by {' or '.join(safe)}, not at {url!r}")
        return self
