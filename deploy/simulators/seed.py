"""Seeding over the wire: ConfigCache documents, DBS reference data and input datasets, CRIC rows, ready requests.

What the real services take goes through their own doors (CouchDB PUT, DBS ``bulkblocks`` and reference data); generated
datasets, CRIC rows and requests in the middle of their life go through ``/admin/seed``, which only the simulators have.
Seeding twice is harmless, also at the same time. The file's format is described in README.md of this folder.
"""

import hashlib
import json
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.simulators.client import Caller, CallFailed

WRITER = "/dbs/prod/global/DBSWriter"
DBS_BLOCK_EXISTS = 200
CONFLICT = 409
_SECTIONS = {"configcache", "dbs", "cric", "reqmgr2"}
_DBS_SECTIONS = {"data_tiers", "physics_groups", "datasets"}
_DEFAULT_CONFIG = {
    "app_name": "cmsRun",
    "release_version": "CMSSW_14_0_0",
    "pset_hash": "GIBBERISH",
    "output_module_label": "Merged",
    "global_tag": "140X_dataRun3_v1",
}


def apply(caller: Caller, path: Path, storage_root: Path | None = None) -> list[str]:
    """Apply a seed file; returns one line per thing done.

    ``storage_root``: sizes and checksums that the file leaves out are read from ``<storage_root>/<RSE>/<LFN>``.

    Raises:
        ValueError: the file does not have the format.
        CallFailed: a service refused.
    """
    seed = json.loads(path.read_text())
    if not isinstance(seed, dict) or set(seed) - _SECTIONS:
        raise ValueError(f"{path}: expected an object with some of {sorted(_SECTIONS)}")
    dbs = seed.get("dbs", {})
    if set(dbs) - _DBS_SECTIONS:
        raise ValueError(f"{path}: dbs: expected some of {sorted(_DBS_SECTIONS)}, found {sorted(dbs)}")
    done = [_configcache(caller, entry, path.parent) for entry in seed.get("configcache", [])]
    for api, key, names in (
        ("datatiers", "data_tier_name", dbs.get("data_tiers", [])),
        ("physicsgroups", "physics_group_name", dbs.get("physics_groups", [])),
    ):
        for name in names:
            caller.json("POST", f"{WRITER}/{api}", {key: name})
        done += [f"dbs: {api}: {', '.join(names)}"] if names else []
    for dataset in dbs.get("datasets", []):
        done.append(_dataset(caller, dataset, storage_root))
    rest = {key: seed[key] for key in ("cric", "reqmgr2") if key in seed}
    if rest:
        done.append(f"admin: {json.dumps(caller.json('POST', '/admin/seed', rest))}")
    return done


def _configcache(caller: Caller, entry: dict[str, Any], folder: Path) -> str:
    """One ConfigCache document with its PSet; written only when it is not there in the same form."""
    document = entry["document"] if "document" in entry else json.loads((folder / entry["document_file"]).read_text())
    pset = entry["pset"] if "pset" in entry else (folder / entry["pset_file"]).read_text()
    identifier = entry.get("id") or document.get("_id")
    if not identifier:
        raise ValueError(f"configcache: {entry}: an id is needed, there or as _id of the document")
    wanted = {**document, "md5_hash": hashlib.md5(pset.encode(), usedforsecurity=False).hexdigest()}
    wanted.pop("_id", None)
    path = f"/couchdb/{entry.get('database', 'reqmgr_config_cache')}/{urllib.parse.quote(identifier, safe='')}"
    while True:  # a conflict is the progress of another process that seeds the same
        try:
            written = _document_written(caller, path, wanted, pset)
        except CallFailed as failure:
            if failure.status != CONFLICT:
                raise
        else:
            return f"configcache: {identifier}: {'written' if written else 'there already'}"


def _document_written(caller: Caller, path: str, wanted: dict[str, Any], pset: str) -> bool:
    """Write what is not there in the same form, the document or its PSet alone too; whether anything was written."""
    found = _document(caller, path) or {}
    rev = found.get("_rev")
    if {key: value for key, value in found.items() if not key.startswith("_")} != wanted:
        rev = caller.json("PUT", path, wanted if rev is None else {**wanted, "_rev": rev})["rev"]
    elif "_attachments" in found:
        return False
    caller.raw("PUT", f"{path}/configFile?rev={rev}", pset.encode(), "text/plain")
    return True


def _document(caller: Caller, path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = caller.json("GET", path)
    except CallFailed as failure:
        if failure.status == 404:
            return None
        raise
    return found


def _dataset(caller: Caller, dataset: dict[str, Any], storage_root: Path | None) -> str:
    name = dataset["dataset"]
    if "generate" in dataset:
        made = caller.json("POST", "/admin/seed", {"dbs": {"datasets": [dataset]}})["dbs"][name]
        return f"dbs: {name}: {made} files generated"
    new = 0
    for body in bulkblocks_of(dataset, storage_root):
        try:
            caller.json("POST", f"{WRITER}/bulkblocks", body)
            new += 1
        except CallFailed as failure:
            if failure.status != 400 or json.loads(failure.body)[0]["error"]["code"] != DBS_BLOCK_EXISTS:
                raise
    return f"dbs: {name}: {len(dataset['blocks'])} blocks, {new} of them new"


def bulkblocks_of(dataset: dict[str, Any], storage_root: Path | None) -> Iterator[dict[str, Any]]:
    """The ``bulkblocks`` bodies of a dataset whose blocks and files are written out.

    Raises:
        ValueError: a name has not the form of a dataset, or a file's size or checksum is neither given nor on the storage.
    """
    name = dataset["dataset"]
    parts = name.split("/")
    if len(parts) != 4 or "-v" not in parts[2]:
        raise ValueError(f"{name!r} is not of the form /primary/era[-string]-vN/TIER")
    config = dataset.get("output_config", _DEFAULT_CONFIG)
    for block in dataset["blocks"]:
        files = [_with_facts(record, block["origin_site_name"], storage_root) for record in block["files"]]
        yield {
            "dataset_conf_list": [config],
            "file_conf_list": [{**config, "lfn": record["lfn"]} for record in files],
            "files": [_file_body(record) for record in files],
            "processing_era": {"processing_version": int(parts[2].rpartition("-v")[2]), "create_by": "seed", "description": ""},
            "acquisition_era": {"acquisition_era_name": parts[2].partition("-")[0], "start_date": 0},
            "primds": {
                "primary_ds_name": parts[1],
                "primary_ds_type": dataset.get("primary_ds_type", "data"),
                "create_by": "seed",
            },
            "dataset": {
                "dataset": name,
                "processed_ds_name": parts[2],
                "data_tier_name": parts[3],
                "physics_group_name": dataset.get("physics_group_name", "DataOps"),
                "dataset_access_type": dataset.get("dataset_access_type", "VALID"),
                "prep_id": dataset.get("prep_id", ""),
                "create_by": "seed",
            },
            "block": {
                "block_name": block["block_name"],
                "origin_site_name": block["origin_site_name"],
                "open_for_writing": block.get("open_for_writing", 0),
                "block_size": sum(record["size_bytes"] for record in files),
                "file_count": len(files),
                "create_by": "seed",
            },
            "file_parent_list": [
                {"logical_file_name": record["lfn"], "parent_logical_file_name": parent}
                for record in files
                for parent in record.get("parents", [])
            ],
            "dataset_parent_list": dataset.get("parents", []),
            "block_parent_list": [
                {"this_block_name": block["block_name"], "parent_block_name": parent} for parent in block.get("parents", [])
            ],
        }


def _file_body(record: dict[str, Any]) -> dict[str, Any]:
    lumis = [
        {"run_num": lumi["run"], "lumi_section_num": lumi["lumi"]}
        | ({} if lumi.get("events") is None else {"event_count": lumi["events"]})
        for lumi in record["lumis"]
    ]
    return {
        "logical_file_name": record["lfn"],
        "file_type": "EDM",
        "file_size": record["size_bytes"],
        "event_count": record["events"],
        "check_sum": str(int(record["adler32"], 16)),
        "adler32": record["adler32"],
        "md5": "NOTSET",
        "is_file_valid": record.get("is_file_valid", 1),
        "file_lumi_list": lumis,
    }


def _with_facts(record: dict[str, Any], rse: str, storage_root: Path | None) -> dict[str, Any]:
    """The record with ``size_bytes`` and ``adler32``, read from the file on the storage when it has none."""
    if record.get("size_bytes") is not None and record.get("adler32") is not None:
        return record
    if storage_root is None:
        raise ValueError(
            f"{record['lfn']}: no size_bytes and adler32 in the seed; give --storage-root to read them from the files"
        )
    path = storage_root / rse / record["lfn"].lstrip("/")
    if not path.is_file():
        raise ValueError(f"{record['lfn']}: no size_bytes and adler32 in the seed, and there is no file {path}")
    content = path.read_bytes()
    return {**record, "size_bytes": len(content), "adler32": f"{zlib.adler32(content):08x}"}
