"""Steps with what their releases ask of a processor, read from the list of releases where one is configured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from dags_app.planning.cms_ads import Levels, read_levels, with_levels
from dags_app.planning.specs import StepSpec
from wms2.conf import conf
from wms2.errors import ServiceUnavailable


def steps_with_levels(steps: Sequence[StepSpec]) -> tuple[StepSpec, ...]:
    """The steps, with their levels.

    Raises:
        ServiceUnavailable: the list is configured and cannot be read, as while CVMFS is away.
    """
    path = conf().releases_map
    if path is None:
        return tuple(steps)
    try:
        return with_levels(steps, _levels(path, path.stat().st_mtime_ns))
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceUnavailable("cvmfs", "releases", f"WMS2_RELEASES_MAP {path} cannot be read: {error}") from error


@lru_cache(maxsize=1)
def _levels(path: Path, _changed_ns: int) -> Levels:
    return read_levels(path.read_text(encoding="utf-8"))
