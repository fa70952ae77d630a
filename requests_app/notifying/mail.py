"""Mails, over SMTP; each recipient's answer counts."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.mail import EmailMessage
from django.core.mail.utils import DNS_NAME

from requests_app.models import AlertMessage
from requests_app.notifying.forms import plain_text, subject_line
from wms2.adapters.caller import TIMEOUT_CODE, Caller
from wms2.adapters.time_limit import TimeLimit
from wms2.conf import conf
from wms2.errors import ConfigurationError, NotNow, ServiceRejected, ServiceUnavailable

#: Of each step of the conversation with the mail server, and of the whole, which is shorter than a claim of the message.
_SECONDS, _WHOLE_SECONDS = 10.0, 60.0
_SERVICE, _OPERATION = "mail", "send"
_FOR_GOOD = 500
#: In the content of a message that some have: the others.
LEFT_TO = "left_to"
Refused = Mapping[str, tuple[int, bytes]]


class PartlyTaken(ServiceUnavailable):
    """Some of the recipients have it. ``later``: those that the server may take on another try."""

    def __init__(self, detail: str, later: list[str]) -> None:
        super().__init__(_SERVICE, _OPERATION, detail)
        self.later = later


def mail_send(message: AlertMessage) -> None:
    """Send a message to its channel's addresses, or to its watcher's; its ``Message-ID`` is the same each time.

    Raises:
        PartlyTaken: it is on its way to some of them, and must not be sent to those again.
        ServiceUnavailable: the mail server has not taken it, or may not have.
        ServiceRejected: it refused all addresses.
        ConfigurationError: no mail server is set, or no address, or one that no mail can have.
    """
    to = addresses_of(message)
    ours = conf()
    if not ours.mail_server or not to:
        raise ConfigurationError("no mail is sent: " + ("WMS2_MAIL_SERVER is not set" if to else "the user has no address"))
    password, data = _password(), _mail(message, to)
    caller = Caller(_SERVICE, ours.mail_server)  # a server that hangs keeps one process at most, however many mails wait
    refused = caller.call(_OPERATION, lambda: _conversed(password, to, data), 1)
    if refused:
        raise PartlyTaken(_words(refused), [each for each, (code, _) in refused.items() if code < _FOR_GOOD])


def _conversed(password: str, to: list[str], data: bytes) -> Refused:
    server, limit = conf().mail_server, TimeLimit(_WHOLE_SECONDS)
    try:
        with limit:
            return _spoken(limit, password, to, data)
    except smtplib.SMTPRecipientsRefused as error:
        later = any(code < _FOR_GOOD for code, _ in error.recipients.values())
        raise (NotNow if later else ServiceRejected)(_SERVICE, _OPERATION, _words(error.recipients)) from error
    except (smtplib.SMTPException, OSError) as error:
        if limit.over:
            late = f"{server}: not done within {_WHOLE_SECONDS:g} s"
            raise ServiceUnavailable(_SERVICE, _OPERATION, late, TIMEOUT_CODE) from error
        raise ServiceUnavailable(_SERVICE, _OPERATION, f"{server}: {type(error).__name__}: {error}") from error


def addresses_of(message: AlertMessage) -> list[str]:
    """Whom it goes to, without those that have it."""
    if message.channel is None:
        return [message.user.email] if message.user is not None and message.user.email else []
    left = message.content.get(LEFT_TO)
    return left or [each.strip() for each in message.channel.address.split(",") if each.strip()]


class _Smtp(smtplib.SMTP):
    """Connected, and covered by the limit from its first byte on."""

    def __init__(self, limit: TimeLimit, host: str, port: int) -> None:
        self._limit = limit
        super().__init__(host, port, DNS_NAME.get_fqdn(), _SECONDS)

    def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
        made: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._limit.covers(made)
        return made


def _spoken(limit: TimeLimit, password: str, to: list[str], data: bytes) -> Refused:
    """Whom of them the server refuses while it takes the mail for the others."""
    ours = conf()
    host, _, port = ours.mail_server.rpartition(":")
    smtp = _Smtp(limit, host, int(port))
    try:
        if ours.mail_starttls:
            smtp.starttls(context=ssl.create_default_context())
        if ours.mail_user and password:
            smtp.login(ours.mail_user, password)
        refused = smtp.sendmail(ours.mail_from, to, data)
        with suppress(smtplib.SMTPException, OSError):  # it has it, whatever it says to a farewell
            smtp.quit()
        return refused
    finally:
        smtp.close()


def _mail(message: AlertMessage, to: list[str]) -> bytes:
    """Raises ConfigurationError: an address cannot stand in a mail."""
    ours = conf()
    headers = {"Message-ID": f"<{message.pk}@{ours.instance}>", "Auto-Submitted": "auto-generated"}
    said = subject_line(message.content, message.kind), plain_text(message.content, message.kind)
    try:
        for each in to:
            each.encode("ascii")
        mail = EmailMessage(*said, ours.mail_from, to, headers=headers).message()
        return mail.as_bytes(linesep="\r\n")  # type: ignore[call-arg]  # Django's own takes it
    except ValueError as error:  # line ends, or what no SMTP server is asked for
        raise ConfigurationError(f"no mail is sent: an address is wrong: {error}") from error


def _words(refused: Refused) -> str:
    said = [f"{each} ({code} {' '.join(why.decode('utf-8', 'replace').split())[:100]})" for each, (code, why) in refused.items()]
    return f"{conf().mail_server} refuses {', '.join(sorted(said))}"


def _password() -> str:
    place = conf().mail_password_file
    try:
        return Path(place).read_text(encoding="utf-8").strip() if place else ""
    except OSError as error:
        raise ConfigurationError(f"WMS2_MAIL_PASSWORD_FILE cannot be read: {type(error).__name__}") from error
