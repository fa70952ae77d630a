"""What is dangerous or useless about the settings of front ends, for ``manage.py check``. Asks no service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.core.checks import CheckMessage, Error, Warning

from wms2.conf import Conf

#: A front end is some hosts: in a network with a shorter prefix, by version of IP, others are among them.
_SHORTEST_PREFIX = {4: 16, 6: 64}
_SHORTEST_KEY_BYTES = 16


def front_end_findings(settings: Conf) -> Iterator[CheckMessage]:
    """One for each."""
    yield from _addresses(settings)
    yield from _key(settings)
    if settings.x509_front_end_addresses and not (settings.x509_logins or settings.x509_login_base):
        why = "WMS2_X509_FRONT_END_ADDRESSES is set, and neither WMS2_X509_LOGINS nor WMS2_X509_LOGIN_BASE: all are refused"
        yield Error(why, id="wms2.E012")
    if settings.front_end_anonymous and settings.environment == "production":
        why = "WMS2_FRONT_END_ANONYMOUS: all that reach the front end read every request, without a name"
        yield Warning(why, id="wms2.W011")
    if settings.front_end_addresses and not settings.role_names:
        why = "WMS2_FRONT_END_ADDRESSES is set and WMS2_ROLE_NAMES is empty: all who come through the front end only read"
        yield Warning(why, id="wms2.W012")


def _addresses(settings: Conf) -> Iterator[CheckMessage]:
    for name in ("front_end_addresses", "x509_front_end_addresses"):
        for network in getattr(settings, name):
            where = f"WMS2_{name.upper()}={network}"
            if network.prefixlen == 0:
                why = "any host is taken for the front end; without HMAC each could be any user"
                yield Error(f"{where}: {why}", "Name the addresses of the front end.", id="wms2.E010")
            elif network.prefixlen < _SHORTEST_PREFIX[network.version]:
                why = "these are more hosts than a front end has, and each of them is taken for it"
                yield Warning(f"{where}: {why}", "Name the addresses of the front end.", id="wms2.W010")


def _key(settings: Conf) -> Iterator[CheckMessage]:
    if not settings.front_end_key:
        if settings.front_end_addresses:
            why = "WMS2_FRONT_END_ADDRESSES is set and WMS2_FRONT_END_KEY is not: no HMAC can be checked, so all are refused"
            yield Error(why, "Name the file with the front end's key.", id="wms2.E011")
        return
    file = Path(settings.front_end_key)
    try:
        size, mode = len(file.read_bytes()), file.stat().st_mode
    except OSError as error:  # no error: commands must work while a file is being renewed
        yield Warning(f"WMS2_FRONT_END_KEY={file}: {error.strerror}; until it is there all are refused", id="wms2.W013")
        return
    if size < _SHORTEST_KEY_BYTES:
        why = f"the key has {size} bytes, and can be guessed; use the front end's own, of {_SHORTEST_KEY_BYTES} or more"
        yield Error(f"WMS2_FRONT_END_KEY={file}: {why}", id="wms2.E013")
    if mode & 0o077:
        why = "others than its owner may read the key, and be any user with it; chmod 400"
        yield Warning(f"WMS2_FRONT_END_KEY={file}: {why}", id="wms2.W014")
    if not settings.front_end_addresses:
        yield Warning("WMS2_FRONT_END_KEY is set and WMS2_FRONT_END_ADDRESSES is not: no front end is believed", id="wms2.W015")
