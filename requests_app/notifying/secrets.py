"""Keys of channels: files that ``WMS2_ALERT_SECRETS`` names, read at each use."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from requests_app.models import AlertChannel
from wms2.conf import conf
from wms2.errors import ConfigurationError

_PREFIX = "whsec_"


def secret_of(channel: AlertChannel) -> str:
    """What its file says. Raises ConfigurationError: it is missing or cannot be read."""
    place = conf().alert_secrets.get(channel.secret)
    if place is None:
        raise ConfigurationError(f"WMS2_ALERT_SECRETS names no file for {channel.secret or 'a channel without a secret'}")
    try:
        said = Path(place).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"the file of the secret {channel.secret} cannot be read: {type(error).__name__}") from error
    if not said:
        raise ConfigurationError(f"the file of the secret {channel.secret} is empty")
    return said


def keys_of(channel: AlertChannel) -> list[bytes]:
    """Keys of Standard Webhooks, one a line, ``whsec_`` and base64. Raises ConfigurationError: as above, or it is no such key."""
    keys = []
    for line in secret_of(channel).split():
        try:
            key = base64.b64decode(line.removeprefix(_PREFIX), validate=True) if line.startswith(_PREFIX) else b""
        except binascii.Error:
            key = b""
        if len(key) < 24:
            raise ConfigurationError(f"the secret {channel.secret} is not {_PREFIX} and the base64 of at least 24 bytes")
        keys.append(key)
    return keys
