"""The files Rucio reads: the server's configuration, its migration tool's, one client home per account, and the passwords.

Every file that holds a password has mode 600. Files are replaced by rename, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy.rucio.server import ACCOUNTS, ADMIN_ACCOUNT, HERE, HOST, Server
from deploy.stack.identity import write_private

PACKAGE = "wms2_rucio_policy"


def passwords(server: Server) -> dict[str, str]:
    """The password of each account; made up at the first call and kept."""
    try:
        kept = json.loads(server.passwords_file.read_text())
    except FileNotFoundError:
        kept = {}
    wanted = {account: kept.get(account) or secrets.token_urlsafe(24) for account in ACCOUNTS}
    write_private(server.passwords_file, json.dumps(wanted, indent=2) + "\n")
    return wanted


def _escaped(value: str | Path) -> str:
    """Configuration files read ``%`` as the start of a reference."""
    return str(value).replace("%", "%%")


def write(server: Server) -> None:
    """Write all files; repeatable."""
    alembic = server.state / "server/etc/alembic.ini"
    scripts = next(server.venv.glob("lib/python3*/site-packages/rucio/db/sqla/migrate_repo"))  # Rucio's own migrations
    server.logs.mkdir(parents=True, exist_ok=True)
    known = passwords(server)
    values = {
        "logs": _escaped(server.logs),
        "database": _escaped(server.sqlalchemy_url),
        "templates": _escaped(server.venv / "rucio/etc/mail_templates"),
        "alembic": _escaped(alembic),
        "scripts": _escaped(scripts),
        "package": PACKAGE,
        "host": HOST,
        "account": ADMIN_ACCOUNT,
        "password": known[ADMIN_ACCOUNT],
    }
    _write(server.config, "server.cfg", values)
    _write(alembic, "alembic.ini", values)
    for account in ACCOUNTS:
        home = server.client_home(account)
        token = _escaped(home / f"token-{account}")
        client = {"url": server.url, "account": account, "password": known[account], "token": token}
        _write(home / "etc/rucio.cfg", "client.cfg", client)


def _write(path: Path, form: str, values: Mapping[str, str]) -> None:
    """Fill in a form of ``config/``."""
    write_private(path, (HERE / "config" / form).read_text().format(**values))
