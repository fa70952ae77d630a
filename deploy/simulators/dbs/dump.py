"""GET /blockdump: a block in the form ``bulkblocks`` takes it."""

from typing import Any

from deploy.simulators.dbs.errors import bad_parameter
from deploy.simulators.dbs.summaries import QUERIES
from deploy.simulators.storage import Storage

Record = dict[str, Any]


def blockdump(storage: Storage, block_name: str | None) -> Record:
    """The block's record with its dataset, files, lumis, configs and parents; empty parts for an unknown block, as DBS does it.

    Raises:
        DbsError: 118, no block name.
    """
    if not block_name:
        raise bad_parameter("no list is allowed for provided key: block_name", function="dbs.blockdump.BlockDump")

    def found(api: str, **names: Any) -> list[Record]:
        query = QUERIES[api]({name: [str(value)] for name, value in names.items()})
        return [dict(row) for row in storage.rows(query.sql, query.values)]

    def one(api: str, **names: Any) -> Record:
        return next(iter(found(api, **names)), {})

    name = block_name.partition("#")[0]
    dataset = one("datasets", dataset=name, dataset_access_type="*", detail=1)
    parents = [record["parent_dataset"] for record in found("datasetparents", dataset=name)]
    lumis: dict[str, list[Record]] = {}
    for lumi in found("filelumis", block_name=block_name):
        if lumi["event_count"] is None:
            del lumi["event_count"]
        lumis.setdefault(lumi.pop("logical_file_name"), []).append(lumi)
    file_configs = storage.rows(
        "SELECT c.release_version, c.pset_hash, c.pset_name, c.app_name, c.output_module_label, c.global_tag, c.create_by,"
        " c.creation_date, f.logical_file_name AS lfn FROM output_configs c JOIN file_configs USING (output_mod_config_id)"
        " JOIN files f USING (file_id) JOIN blocks b USING (block_id) WHERE b.block_name = ?",
        (block_name,),
    )
    era, version, primary = (dataset.pop(key, "") for key in ("acquisition_era_name", "processing_version", "primary_ds_name"))
    return {
        "dataset_conf_list": found("outputconfigs", dataset=name),
        "file_conf_list": [dict(row) for row in file_configs],
        "files": [
            {**_without(file, *_OF_FILES_ONLY), "file_lumi_list": lumis.get(file["logical_file_name"], [])}
            for file in found("files", block_name=block_name, detail=1)
        ],
        "processing_era": one("processingeras", processing_version=version),
        "primds": one("primarydatasets", primary_ds_name=primary),
        "dataset": _without(dataset, "primary_ds_type"),
        "acquisition_era": one("acquisitioneras", acquisition_era_name=era),
        "block": _without(one("blocks", block_name=block_name, detail=1), "dataset"),
        "file_parent_list": [
            {**_without(pair, "logical_file_name"), "this_logical_file_name": pair["logical_file_name"]}
            for pair in found("fileparents", block_name=block_name)
        ],
        "block_parent_list": found("blockparents", block_name=block_name),
        "dataset_parent_list": parents,
        "ds_parent_list": [{"parent_dataset": parent} for parent in parents],
    }


# what GET /files tells of a file and a dump does not
_OF_FILES_ONLY = ("file_id", "dataset_id", "dataset", "block_id", "block_name", "file_type_id", "creation_date", "create_by")


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}
