"""Settings of alerts and mail."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from wms2.conf.base import Base


class Alerts(Base):
    """Who hears of alerts, and by what way."""

    # --- Alerts
    pages_url: str = Field("", pattern=r"^(https?://[^\s?#]+)?$")
    """Address of these pages, for links in messages; empty: messages have none."""
    runbook_url: str = Field("", pattern=r"^(https?://[^\s#]+)?$")
    """Address of the runbook (docs/runbook.md as a page); messages and pages name it with `#` and the alert's code. Empty: they
    say what to do without it."""
    alert_hosts: tuple[str, ...] = ()
    """Hosts that webhooks, Mattermost and Alertmanager may be at, `host` or `host:port`, separated by commas; all others are
    refused, and http except at this machine outside of production. Empty: mail alone."""
    alert_secrets: dict[str, str] = Field({})
    """JSON object: name of a secret that channels refer to -> its file, read at each use: keys of webhooks (`whsec_…`, one a
    line), or the last part of Mattermost's address."""
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

    @model_validator(mode="after")
    def _mail_is_whole(self) -> Self:
        if bool(self.mail_server) != bool(self.mail_from):
            raise ValueError("WMS2_MAIL_FROM: it is set when WMS2_MAIL_SERVER is, and only then")
        if self.mail_user and not self.mail_starttls and self.environment == "production":
            raise ValueError("WMS2_MAIL_STARTTLS: in production a password is only sent encrypted")
        return self
