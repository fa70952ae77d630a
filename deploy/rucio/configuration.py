"""The files Rucio reads: the server's configuration, its migration tool's, one client home per account, and the passwords.

Every file that holds a password has mode 600. Files are replaced by rename, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy.rucio.settings import ADMIN_ACCOUNT, HERE, HOST, SERVICE_ACCOUNT, Settings
from deploy.stack.identity import write_private

PACKAGE = "wms2_rucio_policy"
ACCOUNTS = (ADMIN_ACCOUNT, SERVICE_ACCOUNT)


def passwords(settings: Settings) -> dict[str, str]:
    """The password of each account; made up at the first call and kept."""
    try:
        kept = json.loads(settings.passwords_file.read_text())
    except FileNotFoundError:
        kept = {}
    wanted = {account: kept.get(account) or secrets.token_urlsafe(24) for account in ACCOUNTS}
    write_private(settings.passwords_file, json.dumps(wanted, indent=2) + "\n")
    return wanted


def _escaped(value: str | Path) -> str:
    """Configuration files read ``%`` as the start of a reference."""
    return str(value).replace("%", "%%")


def write(settings: Settings) -> None:
    """Write all files; repeatable."""
    alembic = settings.state / "server/etc/alembic.ini"
    scripts = next(settings.venv.glob("lib/python3*/site-packages/rucio/db/sqla/migrate_repo"))  # Rucio's own migrations
    settings.logs.mkdir(parents=True, exist_ok=True)
    known = passwords(settings)
    values = {
        "logs": _escaped(settings.logs),
        "database": _escaped(settings.sqlalchemy_url),
        "templates": _escaped(settings.venv / "rucio/etc/mail_templates"),
        "alembic": _escaped(alembic),
        "scripts": _escaped(scripts),
        "package": PACKAGE,
        "host": HOST,
        "account": ADMIN_ACCOUNT,
        "password": known[ADMIN_ACCOUNT],
    }
    _write(settings.server_config, "server.cfg", values)
    _write(alembic, "alembic.ini", values)
    for account in ACCOUNTS:
        home = settings.client_home(account)
        token = _escaped(home / f"token-{account}")
        client = {"url": settings.url, "account": account, "password": known[account], "token": token}
        _write(home / "etc/rucio.cfg", "client.cfg", client)


def _write(path: Path, form: str, values: Mapping[str, str]) -> None:
    """Fill in a form of ``config/``."""
    write_private(path, (HERE / "config" / form).read_text().format(**values))
