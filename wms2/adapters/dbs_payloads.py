"""The body of ``bulkblocks``, the checks made on it first, for DBS makes few, and on what DBS has of it then. Pure.

docs/design/services.md, Writing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

from wms2.adapters.dbs_names import SERVICE, VALIDATION_CODE, check_name, dataset_of, name_parts
from wms2.adapters.types import BlockInfo, BlockSpec, DatasetSpec, DbsFile, DbsFileInfo, FileLumi, OutputConfig
from wms2.errors import ServiceRejected

Payload = dict[str, object]


def validate_block(block: BlockSpec) -> None:
    """Refuse a block that DBS would refuse or store wrongly. Raises ServiceRejected: code 113."""
    operation = "register_block"
    check_name("block_name", block.block_name, operation=operation)
    validate_spec(block.dataset)
    for parent in block.dataset_parents:
        check_name("dataset", parent, operation=operation)
    for file in block.files:
        validate_file(file, operation)
    lfns = [file.lfn for file in block.files]
    counted = {events is not None for file in block.files for pairs in file.lumis.values() for _, events in pairs}
    if dataset_of(block.block_name) != block.dataset.dataset:
        problem = f"is not a block of {block.dataset.dataset}"
    elif not block.origin_site:
        problem = "has no origin site"
    elif not block.files:
        problem = "has no file"
    elif len(set(lfns)) != len(lfns):
        problem = f"holds a file twice: {next(lfn for lfn in lfns if lfns.count(lfn) > 1)}"
    elif len(counted) > 1:
        problem = "has event counts for some lumis only; DBS wants them for all or for none"
    elif block.dataset_parents and any(file.parents for file in block.files):
        problem = "names parents of its dataset and of its files; DBS wants one or the other"
    elif not {file.output_config for file in block.files} <= set(block.dataset.output_configs):
        problem = "has a file of a configuration that its dataset does not name"
    else:
        return
    raise ServiceRejected(SERVICE, operation, f"{block.block_name} {problem}; nothing was sent", VALIDATION_CODE)


def validate_spec(spec: DatasetSpec) -> None:
    """Refuse a dataset that DBS would refuse. Raises ServiceRejected: code 113."""
    operation = "register_block"
    check_name("dataset", spec.dataset, operation=operation)
    primary, processed, tier = name_parts(spec.dataset)
    for kind, value in (
        ("primary_ds_name", primary),
        ("primary_ds_type", spec.primary_ds_type),
        ("processed_ds_name", processed),
        ("data_tier_name", tier),
        ("acquisition_era_name", spec.acquisition_era),
    ):
        check_name(kind, value, operation=operation)
    if not spec.output_configs:
        raise ServiceRejected(SERVICE, operation, f"dataset {spec.dataset} has no output configuration", VALIDATION_CODE)


def validate_file(file: DbsFile, operation: str) -> None:
    """Refuse a file that DBS would refuse or store wrongly. Raises ServiceRejected: code 113."""
    check_name("logical_file_name", file.lfn, operation=operation)
    check_name("adler32", file.adler32, operation=operation)
    counts = [events for pairs in file.lumis.values() for _, events in pairs]
    if file.size_bytes <= 0 or file.events < 0:
        problem = f"size {file.size_bytes} bytes, {file.events} events"
    elif not counts:
        problem = "no lumis"
    elif any(len({lumi for lumi, _ in pairs}) != len(pairs) for pairs in file.lumis.values()):
        problem = "a lumi twice"
    else:
        return
    raise ServiceRejected(SERVICE, operation, f"{file.lfn}: {problem}", VALIDATION_CODE)


def block_payload(block: BlockSpec, create_by: str) -> Payload:
    """The body of POST ``/bulkblocks``: everything the block needs, in one transaction."""
    now = int(time.time())
    made: Payload = {"create_by": create_by, "creation_date": now}
    changed: Payload = {"last_modified_by": create_by, "last_modification_date": now}
    spec = block.dataset
    primary, processed, tier = name_parts(spec.dataset)
    return {
        "dataset_conf_list": [asdict(config) for config in spec.output_configs],
        "file_conf_list": [asdict(file.output_config) | {"lfn": file.lfn} for file in block.files],
        "files": [file_payload(file) | changed for file in block.files],
        "processing_era": {"processing_version": spec.processing_version, "create_by": create_by, "description": ""},
        "acquisition_era": {"acquisition_era_name": spec.acquisition_era, "start_date": now},
        "primds": {"primary_ds_name": primary, "primary_ds_type": spec.primary_ds_type} | made,
        "dataset": {
            "dataset": spec.dataset,
            "processed_ds_name": processed,
            "data_tier_name": tier,
            "physics_group_name": spec.physics_group,
            "dataset_access_type": "PRODUCTION",
            "prep_id": spec.prep_id,
        }
        | made
        | changed,
        # open_for_writing 0: DBS takes it for a number, but readers take an open block for one that may grow
        "block": {
            "block_name": block.block_name,
            "origin_site_name": block.origin_site,
            "open_for_writing": 0,
            "block_size": block.size_bytes,
            "file_count": len(block.files),
        }
        | made,
        "file_parent_list": [
            {"logical_file_name": file.lfn, "parent_logical_file_name": parent} for file in block.files for parent in file.parents
        ],
        "dataset_parent_list": list(block.dataset_parents),
        "block_parent_list": [],
    }


def file_payload(file: DbsFile) -> Payload:
    """One element of ``files``."""
    lumis: list[Payload] = []
    for run in sorted(file.lumis):
        for lumi, events in sorted(file.lumis[run], key=lambda pair: pair[0]):
            record: Payload = {"run_num": run, "lumi_section_num": lumi}
            lumis.append(record if events is None else record | {"event_count": events})
    return {
        "logical_file_name": file.lfn,
        "file_size": file.size_bytes,
        "event_count": file.events,
        "file_type": "EDM",
        "check_sum": "NOTSET",
        "adler32": file.adler32,
        "md5": "NOTSET",
        "auto_cross_section": 0.0,
        "file_lumi_list": lumis,
    }


def differences(
    wanted: BlockSpec,
    known: BlockInfo,
    files: Sequence[DbsFileInfo],
    lumis: Iterable[FileLumi],
    configs: Sequence[OutputConfig],
) -> tuple[str, ...]:
    """Each difference in a few words, none if the block is registered as it should be, as far as DBS knows.

    Args:
        known, files, lumis: the block and its files, valid or not, with their lumis, as DBS's writer has them.
        configs: those of the wanted block's first file. Their release is not compared: see ``stored_otherwise``.
    """
    found: list[str] = []
    there = {file.lfn: file for file in files}
    mine = {file.lfn: file for file in wanted.files}
    for word, lfns in (("lacks", mine.keys() - there.keys()), ("also holds", there.keys() - mine.keys())):
        if lfns:
            found.append(f"it {word} {len(lfns)} files, first {min(lfns)}")
    both = sorted(mine.keys() & there.keys())
    if changed := [lfn for lfn in both if _facts(there[lfn]) != _facts(mine[lfn])]:
        first = changed[0]
        found.append(f"{len(changed)} files differ, first {first} with {_words(there[first])}, not {_words(mine[first])}")
    if invalid := [lfn for lfn in both if mine[lfn].is_valid and not there[lfn].is_valid]:
        found.append(f"{len(invalid)} files are INVALID there, first {invalid[0]}")
    if other := _other_lumis({lfn: mine[lfn] for lfn in both}, lumis):
        found.append(f"the lumis of {len(other)} files differ, first {min(other)}: {other[min(other)]}")
    if (known.file_count, known.size_bytes) != (len(wanted.files), wanted.size_bytes):
        counts = f"{known.file_count} files and {known.size_bytes} bytes"
        found.append(f"it counts {counts}, not {len(wanted.files)} and {wanted.size_bytes}")
    config = wanted.files[0].output_config
    if wanted.files[0].lfn in there and not any(_same_but_release(config, each) for each in configs):
        others = ", ".join(_config(each) for each in configs) or "none"
        found.append(f"its files' configuration is {others}, not {_config(config)}")
    return tuple(found)


def is_in_part(
    wanted: BlockSpec,
    known: BlockInfo,
    files: Sequence[DbsFileInfo],
    lumis: Sequence[FileLumi],
    configs: Sequence[OutputConfig],
) -> bool:
    """Whether what is there is as it should be, and the rest is announced by the block's counts, which DBS stores first: a call
    that timed out may still be carried out."""
    there, done = {file.lfn for file in files}, {lfn for lfn, *_ in lumis}
    part = tuple(file for file in wanted.files if file.lfn in there and (file.lfn in done or not file.lumis))
    announced = (known.file_count, known.size_bytes) == (len(wanted.files), wanted.size_bytes)
    if not announced or len(part) == len(wanted.files) or there - {file.lfn for file in wanted.files}:
        return False
    if not part:
        return True
    only, lfns = wanted._replace(files=part), {file.lfn for file in part}
    counts = replace(known, file_count=len(part), size_bytes=only.size_bytes)
    known_configs = configs if part[0] is wanted.files[0] else [part[0].output_config]
    return not differences(only, counts, [file for file in files if file.lfn in lfns], lumis, known_configs)


def stored_otherwise(wanted: BlockSpec, configs: Sequence[OutputConfig]) -> tuple[str, ...]:
    """What DBS could not store as it was sent, and cannot distinguish either, in words: the release of the block's files.

    DBS finds a file's configuration by application, PSet hash, label and global tag: of configurations that differ in the release
    only, files get the one that was there first. That of the dataset is right.
    """
    config = wanted.files[0].output_config
    releases = sorted({each.release_version for each in configs if _same_but_release(config, each)})
    if not releases or config.release_version in releases:
        return ()
    return (
        f"{wanted.dataset.dataset}: DBS shows its files as made with {', '.join(releases)}, which had this configuration"
        f" ({config.output_module_label}, {config.global_tag}) before; they were made with {config.release_version},"
        " as DBS says of the dataset",
    )


def _same_but_release(one: OutputConfig, other: OutputConfig) -> bool:
    return replace(one, release_version="") == replace(other, release_version="")


def _other_lumis(mine: Mapping[str, DbsFile], lumis: Iterable[FileLumi]) -> dict[str, str]:
    """Files whose lumis DBS has otherwise, with one of them in words. A count of 0 reads back as none."""
    left = {
        lfn: {(run, lumi): events or None for run, pairs in file.lumis.items() for lumi, events in pairs}
        for lfn, file in mine.items()
    }
    found: dict[str, str] = {}
    for lfn, run, lumi, events in lumis:
        if lfn not in left or lfn in found:
            continue
        if (run, lumi) not in left[lfn]:
            found[lfn] = f"with {run}:{lumi} too"
        elif (wanted := left[lfn].pop((run, lumi))) != (events or None):
            found[lfn] = f"{run}:{lumi} with {events} events, not {wanted}"
    for lfn, without in left.items():
        if without and lfn not in found:
            found[lfn] = "without {}:{}".format(*min(without))
    return found


def _facts(file: DbsFile | DbsFileInfo) -> tuple[int, str, int]:
    return file.size_bytes, file.adler32, file.events


def _words(file: DbsFile | DbsFileInfo) -> str:
    return f"{file.size_bytes} bytes, adler32 {file.adler32}, {file.events} events"


def _config(config: OutputConfig) -> str:
    parts = (config.app_name, config.release_version, config.global_tag, config.pset_hash, config.output_module_label)
    return "/".join(parts)
