"""How the Rucio server reads its settings and writes its configuration."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from deploy.rucio import configuration
from deploy.rucio.settings import RucioServerError, from_environment


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "STATE is not set"),
        ({"STATE": "relative"}, "STATE must be an absolute path"),
        ({"STATE": "/x", "PORT": "http"}, "PORT must be a number"),
        ({"STATE": "/x", "DATABASE_URL": "mysql://h/db"}, "DATABASE_URL must begin with"),
        ({"STATE": "/x", "DATABASE_URL": "sqlite:///relative.db"}, "DATABASE_URL must begin with"),
    ],
)
def test_wrong_settings_are_refused_by_name(variables: dict[str, str], message: str) -> None:
    with pytest.raises(RucioServerError, match=message):
        from_environment(variables)


def test_a_percent_sign_in_the_database_url_reaches_rucio_unchanged(tmp_path: Path) -> None:
    url = "postgresql://wms2:p%40ss@/rucio?host=/run/a%20b"
    settings = from_environment({"STATE": str(tmp_path), "DATABASE_URL": url})
    (settings.venv / "lib/python3.11/site-packages/rucio/db/sqla/migrate_repo").mkdir(parents=True)
    configuration.write(settings)
    parser = configparser.ConfigParser()
    parser.read([settings.server_config, tmp_path / "server/etc/alembic.ini"])
    expected = "postgresql+psycopg://wms2:p%40ss@/rucio?host=/run/a%20b"
    assert parser["database"]["default"] == parser["alembic"]["sqlalchemy.url"] == expected
