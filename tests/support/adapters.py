"""Adapters of the next test are not those of the last one."""

from __future__ import annotations

from wms2.adapters import factory
from wms2.conf import conf
from wms2.runtime.circuits import circuits


def adapters_forget() -> None:
    """Forget all adapters and what circuits are open; the next call builds them from the environment as it is then."""
    for build in (
        factory.reqmgr2,
        factory.configcache,
        factory.dbs,
        factory.cric,
        factory.rucio,
        factory.htcondor,
        factory.wmstats,
        factory.ssb,
    ):
        build.cache_clear()
    circuits().clear()
    conf.cache_clear()
