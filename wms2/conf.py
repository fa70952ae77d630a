"""Typed, frozen settings of WMS2. Each field is read once from ``WMS2_<FIELD>``; operators' run-time changes are Limit rows.

Units stand in the names. Wrong values are refused by name; there is no fallback. The text below a field is its line in
``docs/configuration.md``, the comments are the headings there.
Sources: spec 4.2, 4.4, 4.7, 5.2, 15; error-handling 8.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal, Self, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, IPvAnyNetwork, NonNegativeInt, ValidationError, model_validator

from wms2.errors import ConfigurationError

#: A transaction of the database whose process does nothing for so long is broken off.
DATABASE_IDLE_SECONDS = 60
#: An address with one place for a name.
LINK = r"^(https?://[^{}\s]*\{\}[^{}\s]*)?$"


class JobCredential(StrEnum):
    """What jobs carry to prove who they are: nothing, an X.509 proxy, or a bearer token."""

    NONE, PROXY, TOKEN = "none", "proxy", "token"


class Conf(BaseModel):
    """All settings. Required ones have no default."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    # --- Identity and places
    instance: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Name of this installation. Stamped on every job and kept in the database; a process with another name refuses to work
    on it. Letters, digits, `.`, `_`, `-`; at most 63 characters."""
    environment: str = Field(pattern=r"^(demo|test|production)$")
    """`demo`, `test` or `production`. Kept in the database like `instance`. `production` switches TLS on."""
    state_dir: Path
    """Absolute path of the directory for everything that this installation writes. Not below `/tmp`."""
    submit_root: Path
    """Where the directories of DAGs lie: on the schedd's file system, writable for the owner of the jobs, not below `/tmp`,
    where DAGMan refuses to keep its logs."""

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
    rucio_scope: str = "cms"
    """Scope of all datasets, blocks and files."""
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
    job_credential_margin_seconds: int = Field(7200, ge=0)
    """No DAG is submitted whose jobs' credential ends sooner; requests wait in QUEUED and say so. A token has to be good
    for the wall time that the DAG's jobs ask for as well: HTCondor renews only proxies of jobs that run."""
    job_credential_stop_seconds: int = Field(900, ge=300)
    """DAGs are stopped when their jobs' credential ends so soon, and go on from their rescue files when it has been
    renewed. At most the margin."""
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
    role_names: dict[str, Literal["viewer", "requester", "site admin", "operator", "admin"]] = {}
    """JSON object: what the front end, single sign-on and tokens call a role or group -> `viewer`, `requester`, `site admin`,
    `operator` or `admin`. Names that are not in it give nothing."""
    flower_url: str = Field("", pattern=r"^(https?://.*)?$")
    """Where Flower shows the Celery workers, at the host name of the pages, so that it is sent their session. They link to
    it for operators; empty: there is no link."""
    link_reqmgr2: str = Field("", pattern=LINK)
    """Page of a request in ReqMgr2, `{}` in place of its name, as in CMS `https://cmsweb.cern.ch/reqmgr2/fetch?rid={}`. Pages
    lead there; empty: they do not. So do the next ones."""
    link_mcm: str = Field("", pattern=LINK)
    """Page of a prep id in McM, `https://cms-pdmv-prod.web.cern.ch/mcm/requests?prepid={}`."""
    link_das: str = Field("", pattern=LINK)
    """Page of a dataset, block or file in DAS, which shows what DBS has: `https://cmsweb.cern.ch/das/request?input={}`."""
    link_rucio: str = Field("", pattern=LINK)
    """Page of a dataset, block or file in Rucio: `https://cms-rucio-webui.cern.ch/did?scope=cms&name={}`."""
    link_cric: str = Field("", pattern=LINK)
    """Page of a site in CRIC: `https://cms-cric.cern.ch/cms/site/detail/{}/`."""
    service_timeout_seconds: float = Field(30.0, gt=0)
    """Limit of one call to an outside service, for each try."""
    submit_timeout_seconds: float = Field(60.0, gt=0)
    """Limit of one submission. When it is over, the outcome is unknown and is searched for."""

    # --- Alerts
    pages_url: str = Field("", pattern=r"^(https?://[^\s?#]+)?$")
    """Address of these pages, for links in messages; empty: messages have none."""
    runbook_url: str = Field("", pattern=r"^(https?://[^\s#]+)?$")
    """Address of the runbook (docs/runbook.md as a page); messages and pages name it with `#` and the alert's code. Empty: they
    say what to do without it."""
    alert_hosts: tuple[str, ...] = ()
    """Hosts that webhooks, Mattermost and Alertmanager may be at, `host` or `host:port`, separated by commas; all others are
    refused, and http except at this machine outside of production. Empty: mail alone."""
    alert_secrets: dict[str, str] = {}
    """JSON object: name of a secret that channels refer to -> its file, read at each use: keys of webhooks (`whsec_…`, one a
    line), or the last part of Mattermost's address."""
    alert_reminder_hours: float = Field(8.0, ge=0, le=24 * 30)
    """An alert that no one has acknowledged is sent again after so many hours; 0: never."""
    alert_digest_hour: int = Field(7, ge=0, le=23)
    """Hour, UTC, at which channels with a digest get the list of what waits for people."""
    mail_server: str = Field("", pattern=r"^([^\s:]+:\d{1,5})?$")
    """Mail server, `host:port`; empty: no mail is sent."""
    mail_from: str = Field("", pattern=r"^([^\s@]+@[^\s@]+)?$")
    """Sender of mails; needed with `mail_server`."""
    mail_starttls: bool = False
    """Whether the connection to the mail server is encrypted (STARTTLS) before anything is sent."""
    mail_user: str = ""
    """User at the mail server; empty: it asks for none."""
    mail_password_file: str = ""
    """File of its password, read at each use."""

    # --- Signing in
    sign_in_failures_per_name: int = Field(5, ge=1, le=1000)
    """So many wrong passwords for one user name from one address within five minutes; from then on no attempt is
    checked until that time is over (429 with `Retry-After`). The right password resets the count."""
    sign_in_failures_per_address: int = Field(20, ge=1, le=100_000)
    """The same for all names from one address, and for wrong tokens over REST. Right tokens never wait."""
    break_glass_accounts: tuple[str, ...] = ()
    """Local users with a password for when single sign-on is down, separated by commas. Each of their sign-ins is audited
    and rings `Wms2BreakGlass`."""
    token_issuers: dict[str, str] = {}
    """JSON object: issuer whose bearer tokens (WLCG profile) are taken, exactly as in `iss` -> where its key set (JWKS) is, a
    URL or an absolute path; both `https://` in production. Each of them may give every role of `role_names`. Empty: no bearer
    tokens. See docs/identities.md."""
    token_audiences: tuple[str, ...] = ()
    """What `aud` of bearer tokens has to name, one of them, separated by commas: usually the address of this installation.
    `https://wlcg.cern.ch/jwt/v1/any` is taken only if it is among them. Required with `token_issuers`."""
    token_max_seconds: int = Field(6 * 3600, ge=60, le=7 * 86400)
    """Bearer tokens that are issued for longer are refused; the WLCG profile allows six hours."""
    token_users: dict[str, str] = {}
    """JSON object: user name of a bearer token's subject, `<sub>#<issuer without https://>` -> the user that the same person or
    service is through other doors."""
    tokens_refused: tuple[str, ...] = ()
    """Revoked before their end, separated by commas: `jti` of a bearer token, or the user name `<sub>#<issuer>` of a subject.
    Users who are not active are refused without it, at once."""
    sso_issuer: str = Field("", pattern=r"^(https?://[^\s?#]+)?$")
    """OpenID Connect issuer of single sign-on, exactly as its discovery document names it, e.g.
    `https://auth.cern.ch/auth/realms/cern`; https in production. Empty: the sign-in page has the local form alone."""
    sso_client_id: str = ""
    """Our client's id at the issuer. Its redirect address there is `/accounts/oidc/sso/login/callback/` of this server."""
    sso_client_secret_file: str = ""
    """File of the client's secret, read at each use."""
    sso_label: str = Field("CERN SSO", min_length=1, max_length=40)
    """What the pages call single sign-on."""
    sso_roles_claim: str = Field("cern_roles", pattern=r"^[^.\s]+(\.[^.\s]+)*$")
    """Claim with the names that `role_names` maps to roles, in the ID token or from the user info endpoint; dots go into
    objects, e.g. `resource_access.wms2.roles`. A list, or words with spaces between them."""
    proxies_in_front: int = Field(0, ge=0, le=10)
    """Reverse proxies between the users and the web processes, each of which appends to `X-Forwarded-For`. With 0 the
    peer's address counts, and the header is ignored; behind a proxy all users then have one address."""
    session_idle_seconds: int = Field(7200, ge=60, le=7 * 86_400)
    """A session in the browser ends when its user has done nothing for so long; a page that updates by itself does nothing."""
    session_absolute_seconds: int = Field(43_200, ge=60, le=30 * 86_400)
    """A session ends so long after its sign-in, whatever is done; of sessions that begin from now on."""
    feed_readers: int = Field(8, ge=0, le=1000)
    """Readers of the event feed (long polls, streams) that a process of the web server lets wait. Each keeps a thread, and
    a session of the database, beside the four threads for everything else; one more is answered 503."""

    stream_url: str = Field("", pattern=r"^(/[^?#\s]*|https?://[^?#\s]+)?$")
    """Where readers reach the process `stream`: a path of this server that the proxy passes on to it, `/stream`, or a whole
    address. `GET /api/v1/events/stream` then leads there, and pages hear of what happens in place of asking every few
    seconds. Empty: the web streams by itself, with a thread for each reader."""
    stream_readers: int = Field(1000, ge=1, le=20_000)
    """Readers that a process `stream` takes; all of them share one session of the database."""

    # --- Front ends
    front_end_addresses: tuple[IPvAnyNetwork, ...] = ()
    """Addresses or networks, separated by commas, that CMS's front end connects from (the TCP peer; `X-Forwarded-For` does
    not count). Only from these are its `cms-*` headers taken, and only with a right HMAC; see docs/identities.md. Empty: no
    such front end."""
    front_end_key: str = Field("", pattern=r"^(/.+)?$")
    """File, absolute, with the key of its HMAC (`cms-authn-hmac`): all of its bytes count, as for WMCore. Read at each use."""
    front_end_names: dict[str, str] = {}
    """JSON object: groups and sites of its roles, as in its headers (`group:higgs`, `site:t2-us-caltech`) -> what WMS2 calls
    them (`HIG`, `T2_US_Caltech`). Others are taken as they are; `t1-ch-cern` as `T1_CH_CERN`."""
    front_end_anonymous: bool = False
    """Whether clients that a front end names no user for (status NONE, no certificate) may read without signing in."""
    x509_front_end_addresses: tuple[IPvAnyNetwork, ...] = ()
    """The same for a front end without HMAC, which verifies client certificates and sends on the client's name. Whatever
    connects from these can be any user: it has to overwrite the three headers below. No address may be in both."""
    x509_dn_header: str = Field("X-SSL-Client-S-DN", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Its header with the name of the verified certificate as RFC 4514 has it, nginx's `$ssl_client_s_dn`."""
    x509_verify_header: str = Field("X-SSL-Client-Verify", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Its header that says `SUCCESS` when the certificate was verified, nginx's `$ssl_client_verify`."""
    x509_voms_header: str = Field("", pattern=r"^([A-Za-z][A-Za-z0-9-]*)?$")
    """Its header with the verified VOMS attributes, separated by commas; `role_names` has them without `/Capability=NULL`
    and `/Role=NULL`. Where it is set the roles come from it alone; empty: users have the roles that are stored for them."""
    x509_logins: dict[str, str] = {}
    """JSON object: the name of a certificate, `/DC=ch/DC=cern/OU=…/CN=…` -> the login of its owner."""
    x509_login_base: str = Field("", pattern=r"^(/[A-Za-z]+=.+)?$")
    """Names that begin with this have their login in the `CN` that comes next, as those of CERN's authority below
    `/DC=ch/DC=cern/OU=Organic Units/OU=Users`. Empty: only `x509_logins` are known."""

    # --- Rates and load
    rate_limit_window_seconds: float = Field(10.0, ge=1, le=3600)
    """Calls of one identity (a user; without one, an address) are counted in windows of so long, in the broker, for all web
    processes. Beyond the numbers below it is answered 429 with `Retry-After`."""
    rate_limit_submit: int = Field(50, ge=0)
    """Imports of one user within the window; 0, as for the others: no limit"""
    rate_limit_read: int = Field(100, ge=0)
    """Reads, pages included"""
    rate_limit_act: int = Field(20, ge=0)
    """Operations: stop, abort, hold, release and all others"""
    rate_limit_streams: int = Field(10, ge=0)
    """Streams of events that are begun"""
    web_threads: int = Field(4, ge=1)
    """Threads of each web process. When most of them are busy for some seconds, calls are refused with 503: listings of
    nodes and logs first, then reads, then what starts work; never what stops work, results and health."""

    # --- Life cycle
    cycle_seconds: float = Field(60.0, gt=0)
    """Pause between two cycles: schedds are asked, and steps that are repeated are repeated."""
    poll_seconds: float = Field(2.0, gt=0, le=10)
    """Pause between two polls: requests are admitted, and those that are due are evaluated."""
    sweep_seconds: float = Field(3600.0, gt=0)
    """A request that was not evaluated for so long is evaluated all the same; nothing should be found."""
    lease_seconds: float = Field(30.0, gt=0)
    """Life of the leader's and of an evaluation's lease; a holder that is silent for longer is replaced. The leader's is at least
    `service_timeout_seconds` and ten seconds: it may have to wait for a silent schedd."""
    worker_heartbeat_seconds: float = Field(10.0, gt=0)
    """How often a worker reports that it is alive and reads what it is to do; after three times as long in silence it counts
    as dead."""
    timeout_queued_seconds: int = Field(7 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is QUEUED for longer raises an alert, and goes on waiting"""
    timeout_active_seconds: int = Field(30 * 86400, ge=60, le=10 * 365 * 86400)
    """A request that is ACTIVE for longer, since its DAG's first job began, raises an alert, and goes on"""
    retry_after_failure_seconds: int = Field(60, ge=1, le=86_400)
    """First pause of a request whose planning or submission failed; doubles"""
    retry_after_failure_max_seconds: int = Field(3600, ge=1, le=7 * 86_400)
    """Longest such pause"""
    submit_unknown_grace_seconds: float = Field(120.0, ge=0)
    """After a submission without an answer, "not in queue and history" counts only when this and `submit_timeout_seconds`
    have passed."""
    schedd_suspicion_seconds: int = 900
    """A schedd that is silent for longer raises an alert at the requests that run there, and an operator may confirm that
    it is lost. A DAG that its schedd does not know for longer is suspected lost."""
    trouble_load_per_cpu: float = Field(4.0, ge=0)
    """Load average per CPU of the leader's host from which on limits by which others are judged (schedds, requests) are
    stretched, up to three times. 0: the load is ignored."""

    # --- Admission
    max_active_dags: int = Field(300, ge=1, le=100_000)
    """DAGs that may be live at the same time, in all"""
    max_dagman_slots_per_schedd: int = Field(3100, ge=2)
    """DAGMan processes, outer and inner ones together, that a schedd may run; taken over when the schedd is first added,
    then kept in its row. Not more than the schedd's START_SCHEDULER_UNIVERSE allows; how many schedds that makes: the
    runbook, Pools and schedds."""
    canary_seconds: float = Field(3600.0, ge=1)
    """A schedd that is added runs a small DAG before it may be enabled; one that has not ended by then failed."""
    idle_job_budget: int = Field(1_000_000, ge=1, le=100_000_000)
    """Jobs that may wait in the pool, over all DAGs; each DAG has a share"""
    admission_high_watermark: float = Field(1.0, gt=0, le=1)
    """Nothing starts once this part of the idle-job budget waits, down to the low watermark"""
    admission_low_watermark: float = Field(0.9, gt=0, le=1)
    """Requests start again when less than this part of the idle-job budget waits"""
    admission_aging_per_hour: float = Field(200.0, ge=0, le=1_000_000)
    """Points by which a queued request's priority rises for each hour that it waits"""

    # --- Planning
    jobs_per_work_unit: int = Field(8, ge=1, le=10_000)
    """Processing jobs that are merged together in the first round"""
    block_target_bytes: int = Field(10**12, ge=10**6, le=10**16)
    """A processing block takes work units until the next one would pass this size"""
    block_max_files: int = Field(500, ge=1)
    """A processing block with so many files takes no more and is registered in DBS. Of this and the document's
    `BlockCloseMaxFiles` the smaller counts; `BlockCloseMaxSize` counts so beside `block_target_bytes`."""
    max_nodes_per_dag: int = Field(50_000, ge=4)
    """Jobs of one DAG, of all roles; more work waits for a further round."""
    max_work_units_per_dag: int = Field(5_000, ge=1)
    """Work units of one DAG."""
    default_memory_per_core_mb: int = Field(2000, ge=100, le=10**6)
    """Memory per core that jobs are given at least, in MB; of requests read from now on"""
    max_memory_per_core_mb: int = Field(3000, ge=100, le=10**6)
    """Memory per core that jobs may ask for at most, in MB; of requests read from now on"""
    max_wall_seconds: int = 48 * 3600
    """Longest run time of a job that is asked for; a job that runs longer is ended."""
    adaptive_default: bool = False
    """Whether a request runs in rounds that are sized by what was measured when its import does not say."""
    work_units_per_round: int = Field(100, ge=1, le=5_000)
    """Work units of a round of an adaptive request, after its first"""
    target_wall_seconds: int = Field(8 * 3600, ge=60)
    """How long a job is to take where a round's splitting is sized by what was measured."""
    memory_margin: float = Field(0.20, ge=0, le=2)
    """Added to the memory that was measured, as a share of it"""
    overcommit_max: float = Field(1.0, ge=1, le=4)
    """Threads of a step's processes together, as a multiple of the job's cores; 1: no more than cores."""
    sizing_min_jobs: int = Field(8, ge=1)
    """A step that fewer jobs have measured keeps the request's hints."""
    input_reread_seconds: float = Field(600.0, gt=0)
    """Pause between two readings of an input dataset that may still grow (`OpenRunningTimeout`)."""
    wait_for_full_units: bool = True
    """While an input dataset may still grow (`OpenRunningTimeout`), jobs that do not fill a work unit wait for more, so
    that merged files are not small. They are planned when the input is closed, or by *Flush*."""
    unreadable_apart_seconds: float = Field(4 * 3600, gt=0)
    """An input file that could not be read at the only site with it is tried again after this, and left out if it cannot be
    read then either; where two sites agree, at once."""
    max_excluded_fraction: float = Field(0.0, ge=0, le=1)
    """The share of its wanted input files that a request may complete without, when they could not be read or not be split;
    above it the request is held (`excluded`). A request may have its own."""
    generation_excess_factor: float = Field(2.0, ge=1.0)
    """Events planned in all, lost ones and extensions included, at most so many times the number to generate that follows
    from the document."""
    pass_fractions: tuple[str, ...] = ("*=1", "DQMIO=0")
    """Share of the events that a document asks for which is enough in DBS, as `TIER=share,...`; `*` is every tier that is
    not named, 1 without it. A generation that has fewer is extended; with input, so much of what the accepted manifests
    declare has to be there. DQMIO holds no events. A request may have its own (`pass_fraction` of a release)."""
    dag_max_merge_groups: int = Field(100, ge=1, le=1000)
    """Work units of one DAG that run at the same time at most"""
    dag_status_interval_seconds: int = 2
    """How often the outer DAGMan of a DAG writes its status file and its job ad."""
    dag_log_scan_interval_seconds: int = Field(1, ge=1)
    """How often DAGMan reads its jobs' event log; each node costs a few of these."""
    retry_processing: int = Field(3, ge=0, le=100)
    """Retries of a processing node; of DAGs planned from now on"""
    retry_merge: int = Field(2, ge=0, le=100)
    """Retries of a merge node; of DAGs planned from now on"""
    cooloff_base_seconds: int = Field(60, ge=1, le=86_400)
    """Pause before the first retry of a node, doubled with each; of DAGs planned from now on"""

    # --- Errors
    error_hold_threshold: float = Field(0.20, gt=0, le=1)
    """Share of a round's work units, above 0 and at most 1, that hold the request when they fail"""
    error_max_rescue_attempts: int = Field(3, ge=0, le=100)
    """Rescues after failures that a round gets, counted from the last release"""
    error_same_units: int = Field(5, ge=0)
    """So many work units that fail with one error, while nothing else ends, abort their DAG; 0: never."""
    stage_out_pauses: tuple[NonNegativeInt, ...] = (60, 300, 600)
    """Seconds between the tries of a job to stage out a file to one volume, separated by commas, before it goes to the
    next, and of an upload to a DQM server; of DAGs planned from now on. A worker node may have a variable of this name of
    its own, with spaces."""
    unit_unbegun_seconds: int = Field(6 * 3600, ge=0)
    """A work unit of which no job has begun at its site so long after it landed, while others of its DAG began elsewhere,
    lands at another site, once in each submission (alert `site_starts_nothing`); 0: never."""
    site_ban_duration_days: float = Field(7.0, gt=0, le=3650)
    """How long a site is banned, when no duration is given"""
    site_ban_promotion_threshold: int = Field(3, ge=1, le=10_000)
    """So many requests that ban a site ban it for all"""
    site_ban_min_failures: int = Field(3, ge=1, le=10**6)
    """Failures for a site's sake that ban it for a request"""
    site_ban_failure_ratio: float = Field(0.50, ge=0, lt=1)
    """Share of the attempts there that they exceed"""
    max_versions: int = Field(5, ge=1)
    """A request may be restarted until so many versions of it exist."""
    superseded_grace_days: float = Field(30.0, ge=0)
    """Outputs that a completed new version has replaced are taken back after so many days, unless the request says at once;
    0: only by hand."""

    # --- Leftovers at sites
    cleaner_enabled: bool = True
    """Whether files that are no longer needed are removed at sites (runbook, Leftovers at sites). Off: no job is submitted
    for it, and those in the queue are removed."""
    cleaner_off_sites: tuple[str, ...] = ()
    """Sites at which nothing is removed, separated by commas."""
    cleaner_grace_days: float = Field(3.0, ge=0)
    """Since the end of a round, until what its units left is removed. Longer than any job runs: one that comes back late is
    then found too."""
    removal_tries: int = Field(3, ge=1, le=1000)
    """After so many tries a request completes without what cannot be removed"""

    # --- Validation
    storage_checks_enabled: bool = True
    """Whether the files of registered blocks are compared with the storage itself, by jobs at its site (runbook,
    Validation). Off: DBS and Rucio alone decide, and each block's evidence says so."""
    storage_check_off_sites: tuple[str, ...] = ()
    """Sites whose storage is not checked, separated by commas; the blocks' evidence says so."""
    storage_checksum_fraction: float = Field(0.01, ge=0, le=1)
    """Share of these files whose Adler-32 is asked for too; where a storage does not report it, the files are
    read whole. Which files is decided by their names. The others are compared by size."""

    # --- DQM harvesting
    harvest_enabled: bool = True
    """Whether DQM files of completed requests that ask for it are harvested (runbook, DQM harvesting). Off: no job is
    submitted for it, and those in the queue are removed; what is to be harvested waits."""
    dqm_upload_url: str = Field("", pattern=r"^(https?://.*[^/])?$")
    """A DQM server that gets all uploads, whatever requests name; for installations of tests."""
    dqm_upload_allowed_urls: tuple[str, ...] = ("https://cmsweb.cern.ch/dqm", "https://cmsweb-testbed.cern.ch/dqm")
    """DQM servers that requests may name (`DQMUploadUrl`), with all that is below these addresses: jobs show them who they
    are. Separated by commas."""
    harvest_max_attempts: int = Field(8, ge=1, le=1000)
    """Failed attempts of one harvesting, after which it waits for an operator"""

    # --- Retention
    keep_events_days: float = Field(90.0, ge=0)
    """Events of the feed go when they are older than so many days and their request has been at an end for as long; 0 keeps
    them for ever, here and below. Readers of the feed must not be further behind."""
    keep_history_days: float = Field(365.0, ge=0)
    """The same for the history of DAGs, and for the samples of failures with the ends of their logs. By age alone: changes
    of schedds' health and queues, and systemic alerts, bans and reconciliations that have ended."""
    keep_audit_days: float = Field(3 * 365.0, ge=0)
    """Entries of the audit that are older than so many days go, whatever they are about."""
    pack_dags_after_days: float = Field(7.0, ge=0)
    """The directories of a request's DAGs become one file each when it has been at an end for so many days; 0: never. The
    pages go on showing what is in them."""
    archive_after_days: float = Field(7.0, ge=0)
    """A request that has been COMPLETED for so many days becomes ARCHIVED, once nothing is owed and its DAG directories are
    packed: the packs are moved to `archive_root`, and read from there. 0: never."""
    archive_root: Path | None = None
    """Directory of the packs of archived requests, on any file system that all workers and web servers see; below
    `state_dir` (`archive`) without it."""

    # --- Registration
    effect_backoff_seconds: tuple[int, ...] = (60, 300, 1800, 7200, 14400, 28800)
    """Pauses after the first, second, … failure, separated by commas; the last one repeats."""
    effect_max_pause_seconds: int = Field(7 * 86400, ge=1, le=7 * 86400)
    """No pause between two tries of an effect is longer, whatever the schedule says"""
    effect_max_retry_seconds: int = Field(3 * 86400, ge=1, le=365 * 86_400)
    """Since its first failure, until an effect waits for an operator"""
    effect_gather_seconds: float = Field(30.0, ge=0)
    """Files of a block that are done within this time are registered and protected together; a block that is whole waits
    for nothing. 0: at once."""
    effect_lease_seconds: float = Field(60.0, gt=0)
    """A registration whose worker has not renewed its claim for so long is made again. At least 60, the time after which the
    database breaks an idle transaction off; only the environment `test` may have less."""
    source_rule_cleanup: str = Field("expire", pattern=r"^(keep|expire)$")
    """What becomes of the rules that protect files where they were made: `expire` ends them when something else keeps the
    files, `keep` never."""
    source_rule_days: float = Field(7.0, ge=0)
    """So many days after the later of a tape rule's OK, of any account, and the block's validation they end."""
    source_rule_days_without_tape: float = Field(0.0, ge=0)
    """So many days after its validation they end for a block that a rule on disk keeps, and none on tape; 0: never. They
    never end by days alone: some other rule has to keep every file."""
    output_placement: str = Field("", pattern=r"^(|msoutput|wms2)$")
    """Who places outputs on tape and disk: `msoutput`, WMCore's, once requests are closed out or announced; WMS2 makes no
    such rule and keeps its source rules until a tape rule of any account is OK over all files; `wms2`, by the placements.
    Empty: `msoutput` while `reqmgr2_follow` is set, else `wms2`."""
    tape_rse_expression: str = "rse_type=TAPE&cms_type=real&wmcore_output_tape=True"
    """Rucio expression of the tape RSEs that one is chosen from for each dataset."""
    rucio_project: str = Field("", pattern=r"^(|Production|RelVal|Test)$")
    """Metadata `project` of new containers and blocks: `Production`, `RelVal` or `Test`. Empty: RelVal for a request whose
    SubRequestType says so, else Production, and Test when the environment is not production."""
    rule_activity: str = "Production Output"
    """Activity of all rules."""
    reconcile_hours: float = Field(24.0, ge=0)
    """From one comparison of an output dataset with what DBS and Rucio hold to the next, and from one check of our rules
    to the next; 0: only when an operator asks."""
    datasets_valid_at: str = Field("completion", pattern=r"^(completion|announcement)$")
    """When datasets of requests that came from ReqMgr2 become VALID: at `completion`, by WMS2; or at `announcement`, when
    they are announced there, as for WMCore's; WMS2 leaves them PRODUCTION then. Others: at completion."""
    physics_group: str = "DataOps"
    """Physics group of output datasets in DBS."""

    @model_validator(mode="after")
    def _credentials_make_sense(self) -> Self:
        if (self.job_credential is not JobCredential.NONE) != bool(self.job_credential_path):
            raise ValueError("WMS2_JOB_CREDENTIAL_PATH: it is set when WMS2_JOB_CREDENTIAL is proxy or token, and only then")
        if self.job_credential_stop_seconds > self.job_credential_margin_seconds:
            raise ValueError("WMS2_JOB_CREDENTIAL_STOP_SECONDS: what is submitted would be stopped at once; at most the margin")
        services = "reqmgr2 wmstats dbs_reader dbs_writer cric site_status mspileup"
        for name in (f"{service}_url" for service in services.split()):
            if self.service_token and getattr(self, name) and not getattr(self, name).startswith("https://"):
                raise ValueError(f"WMS2_SERVICE_TOKEN: it would be sent in the clear to WMS2_{name.upper()}, which is not https")
        return self

    @model_validator(mode="after")
    def _mail_is_whole(self) -> Self:
        if bool(self.mail_server) != bool(self.mail_from):
            raise ValueError("WMS2_MAIL_FROM: it is set when WMS2_MAIL_SERVER is, and only then")
        if self.mail_user and not self.mail_starttls and self.environment == "production":
            raise ValueError("WMS2_MAIL_STARTTLS: in production a password is only sent encrypted")
        return self

    @model_validator(mode="after")
    def _front_ends_are_different(self) -> Self:
        """An address in both would let what needs an HMAC in without one."""
        for one in self.front_end_addresses:
            for other in self.x509_front_end_addresses:
                if one.version == other.version and one.overlaps(other):
                    raise ValueError(f"WMS2_X509_FRONT_END_ADDRESSES: {other} has addresses of WMS2_FRONT_END_ADDRESSES ({one})")
        return self

    @model_validator(mode="after")
    def _sso_is_whole(self) -> Self:
        named = {"CLIENT_ID": self.sso_client_id, "CLIENT_SECRET_FILE": self.sso_client_secret_file}
        for name, value in named.items():
            if bool(value) != bool(self.sso_issuer):
                raise ValueError(f"WMS2_SSO_{name}: it is set when WMS2_SSO_ISSUER is, and only then")
        if self.environment == "production" and self.sso_issuer.startswith("http:"):
            raise ValueError("WMS2_SSO_ISSUER: in production it begins with https://")
        return self

    @model_validator(mode="after")
    def _claims_outlast_idle_transactions(self) -> Self:
        """A block's tape rule could else be claimed while a paused transaction still records what it follows (ADR 0015)."""
        if self.effect_lease_seconds < DATABASE_IDLE_SECONDS and self.environment != "test":
            raise ValueError(
                f"WMS2_EFFECT_LEASE_SECONDS: at least {DATABASE_IDLE_SECONDS}, the seconds after which the database ends an idle"
                " transaction; with less, a request could miss the end of a registration and wait until it is looked at again"
            )
        return self

    @model_validator(mode="after")
    def _fractions_make_sense(self) -> Self:
        try:
            sensible = all(0 <= share <= 1 for share in self.pass_fraction_of.values())
        except ValueError:
            sensible = False
        if not sensible:
            raise ValueError("WMS2_PASS_FRACTIONS: tier=share, each share from 0 to 1, separated by commas")
        return self

    @model_validator(mode="after")
    def _issuers_make_sense(self) -> Self:
        safe = ("https://",) if self.environment == "production" else ("https://", "http://")
        for issuer, place in self.token_issuers.items():
            if not issuer.startswith(safe) or not re.fullmatch(r"[!-~]+", issuer) or set(issuer) & set("#?"):
                raise ValueError(f"WMS2_TOKEN_ISSUERS: an issuer is a URL, {' or '.join(safe)}, without ? and #, not {issuer!r}")
            if not place.startswith((*safe, "/")):
                raise ValueError(
                    f"WMS2_TOKEN_ISSUERS: the keys of {issuer} are at a URL ({' or '.join(safe)}) or an absolute path"
                )
        if self.token_issuers and not any(self.token_audiences):
            raise ValueError("WMS2_TOKEN_AUDIENCES: name what aud of bearer tokens has to be, or set no WMS2_TOKEN_ISSUERS")
        return self

    @property
    def msoutput_places(self) -> bool:
        """Whether WMCore's MSOutput makes the rules on tape and disk; then WMS2 makes none."""
        return (self.output_placement or ("msoutput" if self.reqmgr2_follow else "wms2")) == "msoutput"

    @property
    def pass_fraction_of(self) -> dict[str, float]:
        """``pass_fractions`` by tier; ``*`` is there always."""
        pairs = (each.partition("=") for each in self.pass_fractions)
        return {"*": 1.0} | {tier.strip(): float(share) for tier, _, share in pairs}

    def dqm_problem(self, urls: Sequence[str]) -> str:
        """Why a document may not name these DQM servers, which jobs show their credential; empty when it may."""
        known = tuple(f"{url.rstrip('/')}/" for url in self.dqm_upload_allowed_urls)
        strange = [url for url in urls if not self.dqm_upload_url and not f"{url}/".startswith(known)]
        return f"{', '.join(strange)}: WMS2 uploads to {', '.join(known) or 'none'} and below only" if strange else ""

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


#: Settings of former releases that are constants now: set, they would do nothing, so they stop the start.
_REMOVED = """
WMS2_TIMEOUT_SUBMITTED_SECONDS WMS2_TIMEOUT_PLANNING_SECONDS WMS2_TIMEOUT_DISPATCH_SECONDS WMS2_TIMEOUT_STOPPING_SECONDS
WMS2_TIMEOUT_RESUBMITTING_SECONDS WMS2_TIMEOUT_VALIDATING_SECONDS WMS2_TIMEOUT_VALIDATED_SECONDS
WMS2_TIMEOUT_REMOVING_SECONDS WMS2_TIMEOUT_CLEANING_SECONDS WMS2_SCHEDD_MAX_DUTY_CYCLE WMS2_SCHEDD_STALLED_SECONDS
WMS2_SYSTEMIC_WINDOW_SECONDS WMS2_OVERLOAD_EVALUATIONS_SECONDS WMS2_OVERLOAD_EFFECTS_SECONDS
WMS2_OVERLOAD_DATABASE_SECONDS WMS2_STRAY_LOOK_SECONDS WMS2_SUBMIT_ROOT_FREE_MB WMS2_BLOCK_MAX_EVENTS
WMS2_BLOCK_MAX_LUMIS WMS2_BLOCK_MAX_WAIT_SECONDS WMS2_FIRST_ROUND_UNITS WMS2_MIN_REQUEST_CPUS WMS2_SPLIT_BELOW
WMS2_MAX_JOBS_PER_WORK_UNIT WMS2_INPUT_LOCATIONS_SECONDS WMS2_INPUT_MISSING_ALERT_SECONDS WMS2_EXTEND_MAX_FAILURE_RATE
WMS2_EXTEND_MAX_QUEUED WMS2_DAG_MAX_PROCESSING WMS2_ALERT_FAILED_ATTEMPTS WMS2_JOB_NO_CPU_SECONDS WMS2_JOB_HELD_SECONDS
WMS2_JOB_MAX_STARTS WMS2_JOB_IDLE_SECONDS WMS2_CLEANER_ENDED_GRACE_DAYS
WMS2_SITE_JOB_TIMEOUT_SECONDS WMS2_SITE_JOB_RUN_SECONDS WMS2_HARVEST_MEMORY_MB WMS2_HARVEST_RUN_SECONDS
WMS2_HARVEST_MAX_JOBS WMS2_KEEP_ANSWERS_HOURS WMS2_KEPT_LOGS_PER_UNIT WMS2_KEPT_LOGS_PER_DAG WMS2_KEPT_LOGS_MB_PER_DAG
WMS2_KEPT_LOGS_OF_SUCCESSES WMS2_RULE_APPROVAL_CHECK_SECONDS WMS2_RECONCILE_DAYS WMS2_INTEGRITY_REMINDER_HOURS
WMS2_DATABASE_LOCK_SECONDS WMS2_DATABASE_IDLE_SECONDS WMS2_DATABASE_SILENT_SECONDS WMS2_WORKER_MISSING_SECONDS
WMS2_CREDENTIAL_ALERT_SECONDS WMS2_SIGN_IN_WINDOW_SECONDS WMS2_MAX_CLOCK_SKEW_SECONDS WMS2_PRIMARY_DS_TYPE
WMS2_PILEUP_MIN_FRACTION WMS2_PILEUP_CACHE_SECONDS
"""


def _variable(place: tuple[int | str, ...]) -> str:
    """Which variable a problem is about; empty for one of several together, which names them itself."""
    return f"WMS2_{'_'.join(str(part) for part in place).upper()}: " if place else ""


def _value(raw: str, form: object) -> object:
    """Lists are separated by commas, names with values are a JSON object; anything else is refused like any wrong value."""
    if form is tuple:
        return tuple(part.strip() for part in raw.split(","))
    if form is dict:
        with suppress(ValueError):
            return json.loads(raw)
    return raw


def from_environment(environment: Mapping[str, str]) -> Conf:
    """Read the settings from ``WMS2_*`` variables. Raises ConfigurationError: naming each missing, wrong or removed variable."""
    if removed := sorted(set(_REMOVED.split()) & {name for name, value in environment.items() if value}):
        raise ConfigurationError(f"these are constants of the code now; remove them from the environment: {', '.join(removed)}")
    values: dict[str, object] = {}
    for name in Conf.model_fields:
        raw = environment.get(f"WMS2_{name.upper()}")
        if raw is None or raw == "":
            continue
        values[name] = _value(raw, get_origin(Conf.model_fields[name].annotation))
    try:
        return Conf.model_validate(values)
    except ValidationError as error:
        lines = [f"{_variable(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise ConfigurationError("WMS2 is not configured; set in the environment:\n  " + "\n  ".join(lines)) from error


@cache
def conf() -> Conf:
    """The settings of this process, read once from the process environment."""
    return from_environment(os.environ)
