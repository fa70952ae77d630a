"""Rucio policy package for CMS names: ``schema`` what a name may look like, ``permission`` who may do what, here where files lie.

Loaded by the Rucio server (``[policy] package``), not by WMS2.
"""

SUPPORTED_VERSION = ">=41,<42"


def keep_lfn(scope, name, rse, rse_attrs, protocol_attrs):
    """Path below the RSE's prefix: the LFN itself. Rucio's own ``identity`` puts the scope before it."""
    return name.lstrip("/")


def get_algorithms():
    """Algorithms by type and name, as Rucio looks them up."""
    return {"lfn2pfn": {"keep_lfn": keep_lfn}}
