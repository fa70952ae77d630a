"""What the parts of a ScramArch stand for, e.g. ``el8_amd64_gcc12``: for the planner's attributes and on the worker node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

#: First part -> what glideins call the system; CentOS, Alma and EL of one number run each other's programs.
SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "slc5": "rhel6", "slc6": "rhel6", "slc7": "rhel7", "cc7": "rhel7", "cs7": "rhel7", "el7": "rhel7",
        "cc8": "rhel8", "cs8": "rhel8", "alma8": "rhel8", "el8": "rhel8",
        "cs9": "rhel9", "alma9": "rhel9", "el9": "rhel9", "el10": "rhel10",
    }
)  # fmt: skip
#: Second part -> HTCondor's ``Arch`` of a machine; but for their case these are the machine's own words.
ARCHITECTURES: Mapping[str, str] = MappingProxyType({"amd64": "X86_64", "aarch64": "aarch64", "ppc64le": "ppc64le"})
_COMPILER = re.compile(r"gcc(\d+)")


def system_of(scram_arch: str) -> str:
    """Its system as glideins call it; empty for none of those known."""
    return SYSTEMS.get(scram_arch.split("_")[0], "")


def compiler_of(scram_arch: str) -> int:
    """The compiler's major version, by which those of one system are older and newer: 7 of gcc700, 12 of gcc12."""
    found = _COMPILER.search(scram_arch)
    digits = found[1] if found else "0"
    return int(digits[0] if len(digits) > 2 else digits)
