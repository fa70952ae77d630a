"""CMS name rules as ReqMgr2 applies them (its "Lexicon"): a check returns True or raises ``LexiconError`` in its words."""

import json
import re
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], bool]


class LexiconError(ValueError):
    """A value does not have the form its name asks for."""


def match(pattern: str, value: Any, max_length: int | None = None) -> bool:
    """``value`` begins as ``pattern`` says (the patterns carry their own ``$``).

    Raises:
        LexiconError: it does not, or it is too long.
    """
    if not isinstance(value, str):
        raise LexiconError(f"expected string or bytes-like object, got '{type(value).__name__}'")
    if max_length is not None and len(value) > max_length:
        raise LexiconError(f"{value} is longer than max length ({max_length}) allowed")
    if re.match(pattern, value) is None:
        raise LexiconError(f"'{value}' does not match regular expression {pattern}")
    return True


def _named(pattern: str, max_length: int | None = None) -> Check:
    return lambda value: match(pattern, value, max_length)


def _each(check: Check, empty: str = "") -> Check:
    """One value, or a map of values by step; with ``empty``, what is said of neither."""

    def all_pass(value: Any) -> bool:
        if empty and not value:
            raise LexiconError(f"{empty} cannot be empty or None.")
        return all(check(item) for item in (value.values() if isinstance(value, dict) else [value]))

    return all_pass


_DATASET = r"^/[a-zA-Z0-9\-_]{1,99}/[a-zA-Z0-9\.\-_]{1,199}/[A-Z0-9\-]{1,99}"

acquisition_era = _each(_named(r"[a-zA-Z][a-zA-Z0-9_]*$"), "AcqEra")
processing_string = _each(_named(r"[a-zA-Z0-9_]{1,100}$"), "ProcStr")
processing_version = _each(lambda value: match(r"^[0-9]+$", str(value)))
dataset = _named(_DATASET + "$")
block = _named(_DATASET + r"#[a-zA-Z0-9\.\-_]{1,99}$")
cms_site = _named(r"^T[0-3]_[A-Z]{2}((_[A-Za-z0-9]+)+)_*$")
identifier = _named(r"[a-zA-Z0-9\s\.\-_]{1,100}$")
task_or_step_name = _named(r"^[a-zA-Z][a-zA-Z0-9\-_]*$", 50)
# an http(s) URL with a port or ending in /couchdb
couch_url = _named(r"https?://(([a-zA-Z0-9:@\.\-_]){0,100})([a-z0-9\.]+)(:\d+|/couchdb)")
# ReqMgr2 also calls the DBS behind it; the simulator does not
service_url = _named(r"^https?://[^\s/]+(/\S*)?$")


def campaign(value: Any) -> bool:
    """Letters, digits, dashes, underscores, at most 80; may be empty."""
    return not value or match(r"^[a-zA-Z0-9-_]{1,80}$", value)


def primary_dataset(value: Any) -> bool:
    """A primary dataset's name; an empty one does not pass."""
    return bool(value) and match(r"^[a-zA-Z][a-zA-Z0-9\-_]*$", value, 99)


def processed_dataset(value: str) -> bool:
    """``era[-filter]-string-vN``."""
    if not value or value.startswith("None"):
        raise LexiconError("ProcDataset cannot be empty or start with None.")
    return match(r"[a-zA-Z0-9\.\-_]+", value, 199) and match(r"[a-zA-Z][a-zA-Z0-9_]*(\-[a-zA-Z0-9_]+){0,2}-v[0-9]*$", value)


def release(value: Any) -> bool:
    """A CMSSW release. (ReqMgr2 looks it up in the list of releases; here the form counts.)"""
    return isinstance(value, str) and re.match(r"^CMSSW(_\d+){3}(_[a-zA-Z0-9_]+)?$", value) is not None


def architectures(values: Any) -> bool:
    """ScramArch values, by their form."""
    return all(isinstance(value, str) and re.match(r"^[a-z0-9]+_[a-z0-9]+_(gcc|llvm)[a-z0-9]+$", value) for value in values)


def dashboard_activity(value: Any) -> bool:
    """One of the known activities."""
    known = (
        *("reprocessing", "production", "relval", "tier0", "t0", "harvesting", "storeresults"),
        *("integration", "test", "analysis"),
    )
    if value not in known:
        raise LexiconError(f"Invalid dashboard activity: {value} should 'test'")
    return True


def sub_request_type(value: Any) -> bool:
    """One of the known sub-types, or empty."""
    known = ["MC", "ReDigi", "Extension", "Pilot", "RelVal", "HIRelVal", "ReReco", ""]
    if value not in known:
        raise LexiconError(f"Invalid SubRequestType value: '{value}'. Allowed values are: {known}")
    return True


def gpu_parameters(value: Any) -> bool:
    """A JSON text: null, or an object with memory, CUDA runtime and capabilities."""
    mandatory = {"GPUMemoryMB", "CUDARuntime", "CUDACapabilities"}
    optional = {"GPUName", "CUDADriverVersion", "CUDARuntimeVersion"}
    try:
        data = json.loads(value)
    except (TypeError, ValueError) as error:
        raise LexiconError("GPUParams is not a valid JSON object") from error
    if data is not None and not (isinstance(data, dict) and mandatory <= set(data) <= mandatory | optional):
        raise LexiconError(f"GPUParams is no object with the arguments {mandatory} and perhaps {optional}: {data}")
    return True


_WORD = r"[a-zA-Z0-9\-_]+"
_LFN_BASES = (
    rf"/([a-z]+)/([a-z0-9]+)/({_WORD})/({_WORD})/([A-Z0-9\-_]+)/({_WORD})",
    rf"/([a-z]+)/([a-z0-9]+)/([a-z0-9]+)/({_WORD})/({_WORD})/([A-Z0-9\-_]+)/({_WORD})((/[0-9]+){{3}}){{0,1}}",
    rf"/(store)/(temp/)*(user|group)/([a-zA-Z0-9\.]+|{_WORD})/([a-zA-Z]{_WORD})/({_WORD})/({_WORD})",
)


def lfn_base(value: str) -> bool:
    """The directory of an output dataset: ``/store/<kind>/<era>/<primary>/<TIER>/<string>-vN`` (one level more for backfill)."""
    if any(re.match(pattern, value) for pattern in _LFN_BASES):
        return True
    listed = "".join(f"  {pattern}\n" for pattern in _LFN_BASES)
    raise LexiconError(f"LFN candidate: {value} doesn't match any of the following regular expressions:\n{listed}")
