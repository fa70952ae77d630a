"""The bodies sent to DBS's writer and the checks made on them first. Pure functions (``contracts.md`` 4.1)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from wms2.adapters.dbs_names import SERVICE, VALIDATION_CODE, check_name
from wms2.adapters.types import DatasetSpec, DbsFile, OutputConfig
from wms2.errors import ServiceRejected

Payload = dict[str, object]


def validate_spec(spec: DatasetSpec) -> None:
    """Refuse a dataset that DBS would refuse, or whose name is not made of its parts.

    Raises:
        ServiceRejected: code 113.
    """
    operation = "ensure_dataset"
    for kind, value in (
        ("dataset", spec.dataset),
        ("primary_ds_name", spec.primary_ds_name),
        ("primary_ds_type", spec.primary_ds_type),
        ("processed_ds_name", spec.processed_ds_name),
        ("data_tier_name", spec.data_tier),
        ("acquisition_era_name", spec.acquisition_era),
    ):
        check_name(kind, value, operation=operation)
    made_of = f"/{spec.primary_ds_name}/{spec.processed_ds_name}/{spec.data_tier}"
    if spec.dataset != made_of:
        raise ServiceRejected(SERVICE, operation, f"dataset {spec.dataset} is not made of its parts {made_of}", VALIDATION_CODE)
    if not spec.output_configs:
        raise ServiceRejected(SERVICE, operation, f"dataset {spec.dataset} has no output configuration", VALIDATION_CODE)


def validate_file(file: DbsFile, operation: str) -> None:
    """Refuse a file that DBS would refuse or store wrongly.

    Raises:
        ServiceRejected: code 113.
    """
    check_name("logical_file_name", file.lfn, operation=operation)
    check_name("adler32", file.adler32, operation=operation)
    counts = [events for pairs in file.lumis.values() for _, events in pairs]
    if file.size_bytes <= 0 or file.events < 0:
        problem = f"size {file.size_bytes} bytes, {file.events} events"
    elif not counts:
        problem = "no lumis"
    elif None in counts and any(events is not None for events in counts):
        problem = "event counts for some lumis only; DBS wants them for all or for none"
    elif any(len({lumi for lumi, _ in pairs}) != len(pairs) for pairs in file.lumis.values()):
        problem = "a lumi twice"
    else:
        return
    raise ServiceRejected(SERVICE, operation, f"{file.lfn}: {problem}", VALIDATION_CODE)


def config_payload(config: OutputConfig) -> Payload:
    """An output module configuration."""
    return {
        "app_name": config.app_name,
        "release_version": config.release_version,
        "pset_hash": config.pset_hash,
        "output_module_label": config.output_module_label,
        "global_tag": config.global_tag,
    }


def dataset_payload(spec: DatasetSpec, create_by: str) -> Iterator[tuple[str, Payload]]:
    """``(path, body)`` of everything a dataset needs, in the order DBS needs it; the dataset itself comes last."""
    now = int(time.time())
    yield (
        "/primarydatasets",
        {"primary_ds_name": spec.primary_ds_name, "primary_ds_type": spec.primary_ds_type, "create_by": create_by},
    )
    yield (
        "/acquisitioneras",
        {"acquisition_era_name": spec.acquisition_era, "start_date": now, "create_by": create_by},
    )
    yield "/processingeras", {"processing_version": spec.processing_version, "create_by": create_by, "description": ""}
    for config in spec.output_configs:
        yield "/outputconfigs", config_payload(config) | {"create_by": create_by}
    yield (
        "/datasets",
        {
            "dataset": spec.dataset,
            "primary_ds_name": spec.primary_ds_name,
            "primary_ds_type": spec.primary_ds_type,
            "processed_ds_name": spec.processed_ds_name,
            "data_tier_name": spec.data_tier,
            "acquisition_era_name": spec.acquisition_era,
            "processing_version": spec.processing_version,
            "physics_group_name": spec.physics_group,
            "dataset_access_type": spec.access_type,
            "output_configs": [config_payload(config) for config in spec.output_configs],
            "prep_id": spec.prep_id,
            "create_by": create_by,
            "last_modified_by": create_by,
        },
    )


def file_payload(file: DbsFile, block_name: str, dataset: str) -> Payload:
    """One element of ``files``."""
    config = config_payload(file.output_config)
    lumis: list[Payload] = []
    for run in sorted(file.lumis):
        for lumi, events in sorted(file.lumis[run], key=lambda pair: pair[0]):
            record: Payload = {"run_num": run, "lumi_section_num": lumi}
            lumis.append(record if events is None else record | {"event_count": events})
    return {
        "logical_file_name": file.lfn,
        "dataset": dataset,
        # Inside each file: DBS ignores it beside the list (code 400, block id).
        "block_name": block_name,
        "file_size": file.size_bytes,
        "event_count": file.events,
        "file_type": "EDM",
        "check_sum": "NOTSET",
        "adler32": file.adler32,
        "md5": "NOTSET",
        "is_file_valid": 1,
        "auto_cross_section": 0.0,
        "file_lumi_list": lumis,
        # The server's structure says the first, its documentation and client the second.
        "file_output_config": [config],
        "file_output_config_list": [config],
        "file_parent_list": [{"logical_file_name": file.lfn, "parent_logical_file_name": parent} for parent in file.parents],
    }
