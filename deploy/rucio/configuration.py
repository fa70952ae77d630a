"""The files Rucio reads: the server's configuration, its migration tool's, one client home per account, and the passwords.

Every file that holds a password has mode 600. Files are replaced by rename, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from deploy.rucio.settings import ADMIN_ACCOUNT, HOST, SERVICE_ACCOUNT, Settings

PACKAGE = "wms2_rucio_policy"
ACCOUNTS = (ADMIN_ACCOUNT, SERVICE_ACCOUNT)

SERVER = """\
[common]
logdir = {logs}
loglevel = WARNING
# Rules that ask for approval are told by mail, from these texts; nothing here sends it.
mailtemplatedir = {templates}

[database]
default = {database}

[bootstrap]
# Only what is named here may log in as root; left out, Rucio would add well-known keys.
userpass_identity = {account}
userpass_pwd = {password}
userpass_email = {account}@localhost
x509_identity =
gss_identity =
ssh_identity =

[alembic]
cfg = {alembic}

[policy]
package = {package}
lfn2pfn_algorithm_default = keep_lfn
support = {account}@localhost

[cache]
# Nothing listens here. Rucio would use any memcached it finds at the usual port and share it with other servers.
url = {host}:1

[trace]
tracedir = {logs}
"""

ALEMBIC = """\
[alembic]
script_location = {scripts}
sqlalchemy.url = {database}

[loggers]
keys = root

[handlers]
keys = console

[formatters]
keys = plain

[logger_root]
level = WARN
handlers = console

[handler_console]
class = StreamHandler
args = (sys.stderr,)
formatter = plain

[formatter_plain]
format = %(levelname)s %(name)s %(message)s
"""

CLIENT = """\
[client]
rucio_host = {url}
auth_host = {url}
auth_type = userpass
username = {account}
password = {password}
account = {account}
request_retries = 3
# A file per account: clients of two accounts that share one would act as whoever wrote it last.
auth_token_file_path = {token}
"""


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; an unchanged file is left alone."""
    try:
        if path.read_text() == text and path.stat().st_mode & 0o077 == 0:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.replace(path)


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


def scripts_directory(settings: Settings) -> Path:
    """Rucio's migration scripts in the environment, whatever its Python version."""
    return next((settings.venv / "lib").glob("python3*/site-packages/rucio/db/sqla/migrate_repo"))


def write(settings: Settings) -> None:
    """Write all files; repeatable."""
    alembic = settings.state / "server/etc/alembic.ini"
    settings.logs.mkdir(parents=True, exist_ok=True)
    known = passwords(settings)
    values = {
        "logs": _escaped(settings.logs),
        "database": _escaped(settings.sqlalchemy_url),
        "templates": _escaped(settings.venv / "rucio/etc/mail_templates"),
        "alembic": _escaped(alembic),
        "scripts": _escaped(scripts_directory(settings)),
        "package": PACKAGE,
        "host": HOST,
        "account": ADMIN_ACCOUNT,
        "password": known[ADMIN_ACCOUNT],
    }
    write_private(settings.server_config, SERVER.format(**values))
    write_private(alembic, ALEMBIC.format(**values))
    for account in ACCOUNTS:
        home = settings.client_home(account)
        token = _escaped(home / f"token-{account}")
        client = CLIENT.format(url=settings.url, account=account, password=known[account], token=token)
        write_private(home / "etc/rucio.cfg", client)
