"""Makes Rucio's tables, its root account and WMS2's service account. Runs in the server's environment; $PASSWORDS_FILE is JSON.

Every step looks first, so a bootstrap that was killed is finished by the next one. Passwords already in the database are
replaced by the given ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from rucio.common.constants import DEFAULT_VO
from rucio.common.types import InternalAccount
from rucio.core.account import account_exists, add_account, add_account_attribute, has_account_attribute
from rucio.core.identity import add_account_identity, exist_identity_account
from rucio.db.sqla import models
from rucio.db.sqla.constants import AccountType, DatabaseOperationType, IdentityType
from rucio.db.sqla.session import db_session, get_engine
from rucio.db.sqla.util import build_database, create_base_vo, create_root_account

ROOT = "root"


def build() -> None:
    engine = get_engine()
    with engine.connect() as connection:
        is_built = engine.dialect.has_table(connection, models.AlembicVersion.__tablename__)  # written last
    if not is_built:
        build_database()
    with db_session(DatabaseOperationType.READ) as session:
        has_organisation = session.get(models.VO, DEFAULT_VO) is not None
        has_root = session.get(models.Account, InternalAccount(ROOT)) is not None
    if not has_organisation:
        create_base_vo()
    if not has_root:
        create_root_account()


def ensure_account(name: str, password: str) -> None:
    """The account with its userpass identity of the same name; accounts other than root are administrators of Rucio."""
    account, email = InternalAccount(name), f"{name}@localhost"
    with db_session(DatabaseOperationType.WRITE) as session:
        if not account_exists(account, session=session):
            add_account(account, AccountType.SERVICE, email, session=session)
        if name != ROOT and not has_account_attribute(account, key="admin", session=session):
            add_account_attribute(account=account, key="admin", value=True, session=session)
        if not exist_identity_account(name, IdentityType.USERPASS, account, session=session):
            add_account_identity(name, IdentityType.USERPASS, account, email, default=True, password=password, session=session)
        identity = session.get(models.Identity, (name, IdentityType.USERPASS))
        identity.salt = os.urandom(255)
        identity.password = hashlib.sha256(identity.salt + password.encode()).hexdigest()


def main() -> None:
    passwords: dict[str, str] = json.loads(Path(os.environ["PASSWORDS_FILE"]).read_text())
    build()
    for name, password in passwords.items():
        ensure_account(name, password)


if __name__ == "__main__":
    main()
