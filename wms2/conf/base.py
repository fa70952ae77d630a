"""Which installation this is and where it writes: all other themes of settings are made of this."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from wms2.conf.limits import Limits


class Base(BaseModel):
    """What every theme may look at."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    # --- Identity and places
    instance: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Name of this installation. Stamped on every job and kept in the database; a process with another name refuses to work
    on it. Letters, digits, `.`, `_`, `-`; at most 63 characters."""
    environment: str = Field(pattern=r"^(demo|test|production)$")
    """`demo`, `test` or `production`. Kept in the database like `instance`. `production` switches TLS on."""
    state_dir: Path
    """Absolute path of the directory for everything that this installation writes. Not below `/tmp`."""
    submit_root: Path
    """Where the directories of DAGs lie: on the schedd's file system, writable for the owner of the jobs, not below `/tmp`,
    where DAGMan refuses to keep its logs."""
    limits: Limits = Limits()
    """JSON object: limit -> its default in this installation, where it is to differ from the table *Limits* below. What operators
    change while WMS2 runs comes before it."""
