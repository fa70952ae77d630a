"""Settings of sign-in, tokens and front ends."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, IPvAnyNetwork, model_validator

from wms2.conf.base import Base


class Identities(Base):
    """Who may do what, and how that is proved."""

    # --- Signing in
    break_glass_accounts: tuple[str, ...] = ()
    """Local users with a password for when single sign-on is down, separated by commas. Each of their sign-ins is audited
    and rings `Wms2BreakGlass`."""
    token_issuers: dict[str, str] = Field({})
    """JSON object: issuer whose bearer tokens (WLCG profile) are taken, exactly as in `iss` -> where its key set (JWKS) is, a
    URL or an absolute path; both `https://` in production. Each of them may give every role of `role_names`. Empty: no bearer
    tokens. See docs/identities.md."""
    token_audiences: tuple[str, ...] = ()
    """What `aud` of bearer tokens has to name, one of them, separated by commas: usually the address of this installation.
    `https://wlcg.cern.ch/jwt/v1/any` is taken only if it is among them. Required with `token_issuers`."""
    token_users: dict[str, str] = Field({})
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
    front_end_names: dict[str, str] = Field({})
    """JSON object: groups and sites of its roles, as in its headers (`group:higgs`, `site:t2-us-caltech`) -> what WMS2 calls
    them (`HIG`, `T2_US_Caltech`). Others are taken as they are; `t1-ch-cern` as `T1_CH_CERN`."""
    front_end_anonymous: bool = False
    """Whether clients that a front end names no user for (status NONE, no certificate) may read without signing in."""
    x509_front_end_addresses: tuple[IPvAnyNetwork, ...] = ()
    """The same for a front end without HMAC, which verifies client certificates and sends on the client's name. Whatever
    connects from these can be any user: it has to overwrite `X-SSL-Client-S-DN`, the name of the verified certificate as
    RFC 4514 has it (nginx's `$ssl_client_s_dn`), `X-SSL-Client-Verify`, which says `SUCCESS` when it was verified
    (`$ssl_client_verify`), and the header of the next setting. No address may be in both."""
    x509_voms_header: str = Field("", pattern=r"^([A-Za-z][A-Za-z0-9-]*)?$")
    """Header of that front end with the verified VOMS attributes, separated by commas; `role_names` has them without
    `/Capability=NULL` and `/Role=NULL`. Where it is set the roles come from it alone; empty: users have the roles that are
    stored for them."""
    x509_logins: dict[str, str] = Field({})
    """JSON object: the name of a certificate, `/DC=ch/DC=cern/OU=…/CN=…` -> the login of its owner."""
    x509_login_base: str = Field("", pattern=r"^(/[A-Za-z]+=.+)?$")
    """Names that begin with this have their login in the `CN` that comes next, as those of CERN's authority below
    `/DC=ch/DC=cern/OU=Organic Units/OU=Users`. Empty: only `x509_logins` are known."""

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
