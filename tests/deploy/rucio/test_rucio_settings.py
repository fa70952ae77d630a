"""How the Rucio server's configuration is written."""

from __future__ import annotations

import configparser
from pathlib import Path

from deploy.rucio import configuration
from deploy.rucio.server import Server


def test_a_percent_sign_in_the_database_url_reaches_rucio_unchanged(tmp_path: Path) -> None:
    server = Server(tmp_path, tmp_path / "venv", 1, "postgresql://wms2:p%40ss@/rucio?host=/run/a%20b", tmp_path, 1)
    (server.venv / "lib/python3.11/site-packages/rucio/db/sqla/migrate_repo").mkdir(parents=True)
    configuration.write(server)
    parser = configparser.ConfigParser()
    parser.read([server.config, tmp_path / "server/etc/alembic.ini"])
    expected = "postgresql+psycopg://wms2:p%40ss@/rucio?host=/run/a%20b"
    assert parser["database"]["default"] == parser["alembic"]["sqlalchemy.url"] == expected
