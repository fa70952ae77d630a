"""Which names DBS's writer takes, checked before anything is sent: not all its doors check them (docs/design/services.md, Names).

A misfit raises ``ServiceRejected`` with DBS's own validation code, as the server would have.
"""

from __future__ import annotations

import re

from wms2.errors import ServiceRejected

SERVICE = "dbs"
VALIDATION_CODE = 113

_WORD = r"[a-zA-Z0-9\-_]+"
# Digits are in: DBS knows tiers such as L1NANO, and a server with the older rule refuses them itself.
_TIER = r"[A-Z][A-Z0-9\-]{1,49}"
_DATASET = rf"/[a-zA-Z0-9\-_]{{1,99}}/[a-zA-Z0-9.\-_]{{1,199}}/{_TIER}"
# The two forms WMS2 writes: /store/<kind>/<era>/<primary>/<tier>/<processing>/<number>/<file>, and one level more for backfill.
_LFN = rf"/store/[a-z0-9]+(/[a-z0-9]+)?/{_WORD}/{_WORD}/{_TIER}/{_WORD}((/[0-9]+){{3}})?/[0-9]+/{_WORD}\.root"

_RULES: dict[str, tuple[re.Pattern[str], int]] = {
    "dataset": (re.compile(_DATASET), 301),
    "block_name": (re.compile(rf"{_DATASET}#[a-zA-Z0-9.\-_]{{1,36}}"), 402),
    "logical_file_name": (re.compile(_LFN), 500),
    "data_tier_name": (re.compile(_TIER), 99),
    "processed_ds_name": (re.compile(r"[a-zA-Z][a-zA-Z0-9_]*(-[a-zA-Z0-9_]+){0,2}-v[0-9]+"), 199),
    "primary_ds_name": (re.compile(r"[a-zA-Z][a-zA-Z0-9\-_]*"), 99),
    "primary_ds_type": (re.compile(r"mc|data|cosmic|test"), 10),
    "acquisition_era_name": (re.compile(r"[a-zA-Z][a-zA-Z0-9_]*"), 120),
    "adler32": (re.compile(r"[0-9a-f]{8}"), 8),
}


def check_name(kind: str, value: str, *, operation: str) -> None:
    """Refuse a name that DBS would refuse.

    Args:
        kind: DBS's own key, e.g. ``block_name``.
        operation: for the error.

    Raises:
        ServiceRejected: code 113, names the key and the value.
    """
    pattern, max_length = _RULES[kind]
    if len(value) > max_length or not pattern.fullmatch(value):
        rule = f"{pattern.pattern!r}, at most {max_length} characters"
        detail = f"{kind} {value!r} does not match DBS's rule {rule}; nothing was sent"
        raise ServiceRejected(SERVICE, operation, detail, VALIDATION_CODE)


def dataset_of(block_name: str) -> str:
    """The dataset a block belongs to."""
    return block_name.partition("#")[0]


def name_parts(dataset: str) -> tuple[str, str, str]:
    """Primary dataset, processed dataset and data tier in a dataset's name that ``check_name`` has let through."""
    _, primary, processed, tier = dataset.split("/")
    return primary, processed, tier
