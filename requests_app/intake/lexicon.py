"""The names CMS allows, checked before any of them becomes a path, a dataset or a ClassAd. Owns the rules only.

Sources: the DBS writer's lexicon (docs/design/services.md, Names) and ReqMgr2's own rules for eras, processing strings, steps,
campaigns and sites. Every rule matches the whole text in ASCII, so no whitespace, no ``..`` and no line end gets through.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sites_app.submit_roots import RESERVED


@dataclass(frozen=True, slots=True)
class NameRule:
    """One kind of name: what it is called, what it must match, how long it may be, and the rule in words."""

    what: str
    pattern: str
    max_length: int
    says: str
    reserved: frozenset[str] = frozenset()

    def allows(self, value: str) -> bool:
        """Whether ``value`` is such a name."""
        free = ".." not in value and value.casefold() not in self.reserved
        return free and len(value) <= self.max_length and re.fullmatch(self.pattern, value, re.ASCII) is not None


REQUEST_NAME = NameRule(
    "request name",
    r"[A-Za-z0-9][A-Za-z0-9._-]*",
    150,
    f"letters, digits, '.', '_' and '-', at most 150, no '..', and none of {', '.join(sorted(RESERVED))} (directories of WMS2)",
    RESERVED,
)
STEP_NAME = NameRule("step name", r"[A-Za-z][A-Za-z0-9_-]*", 50, "a letter, then letters, digits, '_' and '-', at most 50")
CAMPAIGN = NameRule("campaign", r"[A-Za-z0-9_][A-Za-z0-9_-]*", 80, "letters, digits, '_' and '-' (not first), at most 80")
ERA = NameRule("acquisition era", r"[A-Za-z][A-Za-z0-9_]*", 100, "a letter, then letters, digits and '_', at most 100 (no '-')")
PROCESSING_STRING = NameRule("processing string", r"[A-Za-z0-9_]+", 100, "letters, digits and '_', at most 100 (no '-')")
FILTER = NameRule("filter name", r"[A-Za-z0-9_]+", 100, "letters, digits and '_', at most 100")
PRIMARY = NameRule("primary dataset", r"[A-Za-z][A-Za-z0-9_-]*", 99, "a letter, then letters, digits, '_' and '-', at most 99")
TIER = NameRule("data tier", r"[A-Z][A-Z-]{2,49}", 50, "capital letters and '-', 3 to 50")
#: Where the DBS that is written to takes such names (``dbs_tiers_with_digits``); input datasets may have one anyway.
TIER_WITH_DIGITS = NameRule("data tier", r"[A-Z][A-Z0-9-]{2,49}", 50, "capital letters, digits and '-', 3 to 50")
PROCESSED = NameRule(
    "processed dataset",
    r"[A-Za-z][A-Za-z0-9_]*(-[A-Za-z0-9_]+){0,2}-v[0-9]+",
    199,
    "Era-[Filter-]ProcessingString-vN, at most 199",
)
DATASET = NameRule("dataset", r"/[A-Za-z0-9_-]{1,99}/[A-Za-z0-9._-]{1,199}/[A-Z][A-Z0-9-]{0,49}", 351, "/Primary/Processed/TIER")
BLOCK = NameRule(
    "block",
    r"/[A-Za-z0-9_-]{1,99}/[A-Za-z0-9._-]{1,199}/[A-Z][A-Z0-9-]{0,49}#[A-Za-z0-9._-]{1,100}",
    452,
    "/Primary/Processed/TIER#id",
)
MODULE = NameRule("output module", r"[A-Za-z][A-Za-z0-9_]*", 100, "a letter, then letters, digits and '_', at most 100")
SITE = NameRule("CMS site", r"T[0-3]_[A-Z]{2}(_[A-Za-z0-9]+)+", 100, "like T2_CH_CERN")
CMSSW = NameRule("CMSSW release", r"CMSSW(_\d+){3}(_[A-Za-z0-9_]+)?", 100, "like CMSSW_14_0_0 or CMSSW_14_0_0_patch1")
SCRAM_ARCH = NameRule("architecture", r"[a-z0-9]+_[a-z0-9]+_[a-z0-9]+", 60, "like el8_amd64_gcc12")
GLOBAL_TAG = NameRule("global tag", r"[A-Za-z0-9_][A-Za-z0-9._:-]*", 100, "letters, digits, '.', '_', ':' and '-', at most 100")
CONFIG_ID = NameRule("ConfigCache id", r"[A-Za-z0-9][A-Za-z0-9_-]*", 100, "letters, digits, '_' and '-', at most 100")
COUCH_DB = NameRule("CouchDB name", r"[a-z][a-z0-9_-]*", 100, "a small letter, then small letters, digits, '_' and '-'")
URL = NameRule(
    "URL", r"https?://[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~-]+)*/?", 300, "http(s)://host[:port]/path, without a user"
)
MERGED_BASE = NameRule(
    "merged LFN base",
    r"/store/(?!(unmerged|temp|user|group|local)(/|$))[a-z][a-z0-9]*(/[a-z0-9]+)?",
    60,
    "below /store, like /store/mc, /store/data or /store/backfill/1, and not below unmerged, temp, user, group or local",
)
UNMERGED_BASE = NameRule(
    "unmerged LFN base", r"/store/(unmerged|temp)(/[a-z0-9]+)?", 60, "/store/unmerged or /store/temp, or one folder below"
)

#: The longest LFN that DBS stores.
LFN_MAX_LENGTH = 500
