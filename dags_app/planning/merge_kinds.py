"""How the files of an output module are merged. Pure.

As in CMS production (WMCore's merge tasks): EDM files, NanoAOD that is still in EDM files, and DQMIO are each merged by cmsRun
with a configuration of their own. ROOT's hadd would write an EDM file without an error that no cmsRun reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dags_app.planning.specs import MergeKind

_NANO_TIERS = ("NANOAOD", "NANOAODSIM")
_DQMIO_TIER = "DQMIO"
_BY_CLASS: Mapping[str, MergeKind] = MappingProxyType(
    {
        "PoolOutputModule": MergeKind.EDM,
        "DQMRootOutputModule": MergeKind.DQMIO,
        "NanoAODOutputModule": MergeKind.PLAIN,
    }
)

#: Classes of output modules whose files can be merged.
MERGEABLE_CLASSES = tuple(_BY_CLASS)


def merge_kind(tier: str, class_name: str = "") -> MergeKind:
    """The kind for a tier and the output module's class, one of ``MERGEABLE_CLASSES``; the tier alone decides when it is ""."""
    if not class_name:
        class_name = "DQMRootOutputModule" if tier == _DQMIO_TIER else "PoolOutputModule"
    kind = _BY_CLASS[class_name]
    return MergeKind.NANO if kind is MergeKind.EDM and tier in _NANO_TIERS else kind
