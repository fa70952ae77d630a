"""Mails, by Django's backend."""

from __future__ import annotations

from pathlib import Path
from smtplib import SMTPException, SMTPRecipientsRefused

from django.core.mail import EmailMessage, get_connection

from requests_app.models import AlertMessage
from requests_app.notifying.forms import plain_text, subject_line
from wms2.adapters.caller import observed
from wms2.conf import conf
from wms2.errors import ConfigurationError, ServiceRejected, ServiceUnavailable

#: Of each step of the conversation with the mail server.
_SECONDS = 10.0
_SERVICE, _OPERATION = "mail", "send"


def mail_send(message: AlertMessage) -> None:
    """Send a message to its channel's addresses, or to its watcher's; its ``Message-ID`` is the same each time.

    Raises:
        ServiceUnavailable: the mail server has not taken it, or may not have.
        ServiceRejected: it refused the addresses.
        ConfigurationError: no mail server is set, or no address.
    """
    to = addresses_of(message)
    ours = conf()
    if not ours.mail_server or not to:
        raise ConfigurationError("no mail is sent: " + ("WMS2_MAIL_SERVER is not set" if to else "the user has no address"))
    host, _, port = ours.mail_server.rpartition(":")
    connection = get_connection(
        host=host, port=int(port), username=ours.mail_user, password=_password(), use_tls=ours.mail_starttls, timeout=_SECONDS
    )
    headers = {"Message-ID": f"<{message.pk}@{ours.instance}>", "Auto-Submitted": "auto-generated"}
    mail = EmailMessage(
        subject_line(message.content, message.kind), plain_text(message.content, message.kind), ours.mail_from, to,
        headers=headers, connection=connection,
    )  # fmt: skip
    with observed(_SERVICE, _OPERATION):
        try:
            mail.send()
        except SMTPRecipientsRefused as error:
            refused = ", ".join(sorted(error.recipients))
            raise ServiceRejected(_SERVICE, _OPERATION, f"{ours.mail_server} refuses {refused}") from error
        except (SMTPException, OSError) as error:
            raise ServiceUnavailable(_SERVICE, _OPERATION, f"{ours.mail_server}: {type(error).__name__}: {error}") from error


def addresses_of(message: AlertMessage) -> list[str]:
    """Whom it goes to."""
    if message.channel is None:
        return [message.user.email] if message.user is not None and message.user.email else []
    return [each.strip() for each in message.channel.address.split(",") if each.strip()]


def _password() -> str:
    place = conf().mail_password_file
    try:
        return Path(place).read_text(encoding="utf-8").strip() if place else ""
    except OSError as error:
        raise ConfigurationError(f"WMS2_MAIL_PASSWORD_FILE cannot be read: {type(error).__name__}") from error
