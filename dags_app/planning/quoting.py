"""Text that may stand in DAG and submit files. Owns what is refused there.

DAGMan and condor_submit each expand ``$`` and cut at quotes and line ends, and nothing that names a request or a site needs
such characters; a value that has them is a mistake or an attack, so it is refused instead of escaped.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PLAIN = re.compile(r"[A-Za-z0-9_.,:+=@/-]*")


def plain(value: str, what: str) -> str:
    """``value`` itself, when it is safe inside quotes in a DAG or submit file.

    Raises:
        ValueError: naming ``what`` and the characters.
    """
    if _PLAIN.fullmatch(value):
        return value
    wrong = "".join(sorted({character for character in value if not _PLAIN.fullmatch(character)}))
    raise ValueError(f"{what} {value!r} has characters that cannot stand in a DAG file: {wrong!r}")


@lru_cache
def site_list(sites: frozenset[str]) -> str:
    """Sites sorted and joined by commas, as HTCondor's string lists want them."""
    for site in sites:
        if "," in site or not site:
            raise ValueError(f"{site!r} is not a site name")
        plain(site, "site")
    return ",".join(sorted(sites))
