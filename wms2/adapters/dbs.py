"""DBS: progressive registration of outputs (dataset → open block → files → close) and reading of inputs (``contracts.md`` 4).

Every write may be repeated; none is sent twice blindly. DBS neither refuses files for a closed block nor reports unknown names on
updates, so those guards are here. They look before they write and are not atomic: one writer per block is the caller's duty
(effects of a block are ordered). ``bulkblocks`` is not offered: mixed with this chain it corrupts a block's counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from wms2.adapters.dbs_names import SERVICE, VALIDATION_CODE, check_name, dataset_of
from wms2.adapters.dbs_payloads import dataset_payload, file_payload, validate_file, validate_spec
from wms2.adapters.dbs_queries import DbsQueries, dbs_fault
from wms2.adapters.http import Credentials, HttpService
from wms2.adapters.types import (
    BlockInfo,
    DatasetInfo,
    DatasetSpec,
    DbsFile,
    DbsFileInfo,
    FileLumi,
    FileParent,
    FilesRegistered,
    OutputConfig,
)
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable
from wms2.retry import jittered_seconds

__all__ = [
    "BlockInfo",
    "DatasetInfo",
    "DatasetSpec",
    "Dbs",
    "DbsFile",
    "DbsFileInfo",
    "FileLumi",
    "FileParent",
    "FilesRegistered",
    "OutputConfig",
]

CREATE_BY = "WMS2"
_WRITE_TRIES = 3
_BATCH_FILES = 100
# A lumi is a row in DBS: large transactions time out at its front-end.
_BATCH_LUMIS = 20_000
_LIVE_ACCESS_TYPES = frozenset({"PRODUCTION", "VALID"})
_ACCESS_TYPES = frozenset({"VALID", "PRODUCTION", "INVALID", "DELETED", "DEPRECATED"})


class Dbs:
    """One DBS instance.

    Args:
        reader_url: ``…/DBSReader``, for inputs.
        writer_url: ``…/DBSWriter``, for writes and for reading back what was written (a reader may lag behind).
        timeout_seconds: per call.
        credentials: certificate paths.
        sleep: for pauses between tries; injected by tests.
    """

    def __init__(
        self,
        reader_url: str,
        writer_url: str,
        *,
        timeout_seconds: float = 30.0,
        credentials: Credentials | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        def service(url: str) -> HttpService:
            return HttpService(
                SERVICE, url, timeout_seconds=timeout_seconds, credentials=credentials, fault_parser=dbs_fault, sleep=sleep
            )

        self._writer, self._sleep = service(writer_url), sleep
        self._inputs, self._outputs = DbsQueries(service(reader_url)), DbsQueries(self._writer)

    # --- outputs: progressive registration

    def ensure_dataset(self, spec: DatasetSpec) -> DatasetInfo:
        """Create the dataset with all it hangs on, unless it exists.

        Raises:
            ServiceRejected: a name DBS does not take; the dataset exists but is not live (INVALID, DELETED, …) or was made with
                other output configurations, so that files could not be registered.
        """
        validate_spec(spec)
        existing = self._outputs.dataset(spec.dataset)
        if existing is None:
            for path, body in dataset_payload(spec, CREATE_BY):
                self._post(path, body, "ensure_dataset")
            return DatasetInfo(spec.dataset, spec.access_type, spec.primary_ds_type)
        if existing.access_type not in _LIVE_ACCESS_TYPES:
            detail = f"{spec.dataset} exists as {existing.access_type}; revive it or choose another processing version"
            raise ServiceRejected(SERVICE, "ensure_dataset", detail)
        missing = [c for c in spec.output_configs if c not in self._outputs.output_configs(spec.dataset)]
        if missing:
            detail = f"{spec.dataset} exists without output configuration {missing[0]}; choose another processing version"
            raise ServiceRejected(SERVICE, "ensure_dataset", detail)
        return existing

    def open_block(self, block_name: str, origin_site: str) -> BlockInfo:
        """Create an open block, unless it exists and is open. Its dataset must exist.

        Args:
            block_name: ``/primary/processed/TIER#uuid``.
            origin_site: an RSE name.

        Raises:
            ServiceRejected: the block exists and is closed.
        """
        check_name("block_name", block_name, operation="open_block")
        existing = self._outputs.block(block_name)
        if existing is None:
            body = {"block_name": block_name, "open_for_writing": 1, "origin_site_name": origin_site, "create_by": CREATE_BY}
            self._post("/blocks", body, "open_block")
            return BlockInfo(block_name, True, 0, 0, origin_site)
        if not existing.is_open:
            raise ServiceRejected(SERVICE, "open_block", f"{block_name} exists and is closed; files need another block")
        return existing

    def register_files(self, block_name: str, dataset: str, files: Sequence[DbsFile]) -> FilesRegistered:
        """Register files in an open block; those already there are left alone, so the call may be repeated.

        What a failed call left behind is found by reading the block back and comparing LFNs, never by sending everything again.

        Raises:
            ServiceUnavailable: not all files are registered, or it is not known; repeat the call.
            NotFoundInService: no such block.
            ServiceRejected: the block is closed and lacks some of the files; a file is there with other contents or in another
                block; DBS refused.
        """
        operation = "register_files"
        check_name("block_name", block_name, operation=operation)
        if dataset_of(block_name) != dataset:
            raise ServiceRejected(SERVICE, operation, f"{block_name} is not a block of {dataset}", VALIDATION_CODE)
        for file in files:
            validate_file(file, operation)
        missing = self._unregistered(block_name, files, operation)
        block = self._outputs.block(block_name)
        if block is None:
            raise NotFoundInService(SERVICE, operation, f"{block_name} does not exist; open it first")
        if missing and not block.is_open:
            lacking = f"{len(missing)} of {len(files)} files are not in it, first {missing[0].lfn}"
            detail = f"{block_name} is closed and {lacking}; nothing was sent"
            raise ServiceRejected(SERVICE, operation, detail)
        for batch in _batches(missing):
            self._post_files(block_name, dataset, batch, operation)
        if missing:
            self._verify(block_name, missing, operation)
        return FilesRegistered(registered=len(missing), already_there=len(files) - len(missing))

    def close_block(self, block_name: str, origin_site: str | None = None) -> None:
        """Close a block (again); with ``origin_site`` also say where most of it lies.

        Raises:
            NotFoundInService: no such block (DBS itself answers 200).
        """
        check_name("block_name", block_name, operation="close_block")
        block = self._outputs.block(block_name)
        if block is None:
            raise NotFoundInService(SERVICE, "close_block", f"{block_name} does not exist")
        # Each update takes one change, and only from the query string: a JSON body is refused (code 118).
        if origin_site and origin_site != block.origin_site:
            self._put_query("/blocks", {"block_name": block_name, "origin_site_name": origin_site}, "close_block")
        if block.is_open:
            self._put_query("/blocks", {"block_name": block_name, "open_for_writing": 0}, "close_block")

    def block(self, block_name: str) -> BlockInfo | None:
        """The block as the writer has it, or None."""
        check_name("block_name", block_name, operation="block")
        return self._outputs.block(block_name)

    def block_files(self, block_name: str) -> list[DbsFileInfo]:
        """All files of a block as the writer has them, valid or not."""
        check_name("block_name", block_name, operation="block_files")
        return list(self._outputs.files("block_name", block_name, valid_only=False, operation="block_files"))

    # --- outputs: invalidation

    def invalidate_files(self, lfns: Iterable[str]) -> int:
        """Mark files invalid, one call each; repeatable. Returns how many.

        There is no invalidation of a block: all its files, or the dataset.
        """
        count = 0
        for lfn in lfns:
            check_name("logical_file_name", lfn, operation="invalidate_files")
            self._put_body("/files", {"logical_file_name": lfn, "is_file_valid": 0}, "invalidate_files")
            count += 1
        return count

    def valid_files(self, dataset: str) -> int:
        """How many files of the dataset are valid, whoever registered them; 0 if DBS does not know it, or has it as INVALID."""
        check_name("dataset", dataset, operation="valid_files")
        return self._outputs.valid_files(dataset)

    def set_dataset_access_type(self, dataset: str, access_type: str) -> None:
        """Set VALID, PRODUCTION, INVALID, DELETED or DEPRECATED.

        Raises:
            NotFoundInService: no such dataset (DBS itself does not say).
        """
        operation = "set_dataset_access_type"
        if access_type not in _ACCESS_TYPES:
            detail = f"access type {access_type!r} is none of {', '.join(sorted(_ACCESS_TYPES))}"
            raise ServiceRejected(SERVICE, operation, detail, VALIDATION_CODE)
        check_name("dataset", dataset, operation=operation)
        existing = self._outputs.dataset(dataset)
        if existing is None:
            raise NotFoundInService(SERVICE, operation, f"{dataset} does not exist")
        if existing.access_type != access_type:
            self._put_body("/datasets", {"dataset": dataset, "dataset_access_type": access_type}, operation)

    # --- inputs

    def dataset(self, name: str) -> DatasetInfo | None:
        """A dataset whatever its access type, or None."""
        check_name("dataset", name, operation="dataset")
        return self._inputs.dataset(name)

    def dataset_exists(self, name: str) -> bool:
        """Whether DBS knows the dataset, whatever its access type."""
        return self.dataset(name) is not None

    def blocks(self, dataset: str) -> Iterator[BlockInfo]:
        """Blocks of a dataset, streamed."""
        check_name("dataset", dataset, operation="blocks")
        return self._inputs.blocks(dataset)

    def files(self, name: str, valid_only: bool = True) -> Iterator[DbsFileInfo]:
        """Files of a dataset or of a block (a name with ``#``), streamed.

        ``valid_only`` also leaves out all files of a dataset that is neither VALID nor PRODUCTION.
        """
        key = "block_name" if "#" in name else "dataset"
        check_name(key, name, operation="files")
        return self._inputs.files(key, name, valid_only=valid_only, operation="files")

    def file_lumis(self, block_name: str) -> Iterator[FileLumi]:
        """Lumis of all files of a block, streamed. DBS keeps no event count for a lumi of 0 events: ``events`` may be None."""
        check_name("block_name", block_name, operation="file_lumis")
        return self._inputs.file_lumis(block_name)

    def file_parents(self, block_name: str) -> Iterator[FileParent]:
        """Parents of all files of a block, streamed."""
        check_name("block_name", block_name, operation="file_parents")
        return self._inputs.file_parents(block_name)

    # --- calls

    def _unregistered(self, block_name: str, files: Sequence[DbsFile], operation: str) -> list[DbsFile]:
        """The files that the block does not have; refuses those it has with other contents."""
        there = {f.lfn: f for f in self._outputs.files("block_name", block_name, valid_only=False, operation=operation)}
        missing: dict[str, DbsFile] = {}
        for file in files:
            known = there.get(file.lfn)
            if known is None:
                missing[file.lfn] = file
            elif (known.size_bytes, known.adler32, known.events) != (file.size_bytes, file.adler32, file.events):
                ours = f"{file.size_bytes} bytes, adler32 {file.adler32}, {file.events} events"
                theirs = f"{known.size_bytes} bytes, adler32 {known.adler32}, {known.events} events"
                raise ServiceRejected(SERVICE, operation, f"{file.lfn} is in {block_name} with {theirs}, not {ours}")
        return list(missing.values())

    def _post_files(self, block_name: str, dataset: str, batch: Sequence[DbsFile], operation: str) -> None:
        """Send one batch; after a failure read back and send only what is missing.

        A refusal is looked at too: it may come from an earlier, timed-out call that was still being carried out.
        """
        left = list(batch)
        for attempt in range(1, _WRITE_TRIES + 1):
            body = {"files": [file_payload(f, block_name, dataset) for f in left]}
            try:
                self._writer.send_json("POST", "/files", operation=operation, body=body)
                return
            except (ServiceUnavailable, ServiceRejected) as error:
                left = self._unregistered(block_name, left, operation)
                if not left:
                    return
                if attempt == _WRITE_TRIES or isinstance(error, ServiceRejected):
                    raise
                self._sleep(jittered_seconds(attempt, 0.5, 30.0))

    def _verify(self, block_name: str, files: Sequence[DbsFile], operation: str) -> None:
        """DBS answers 200 for a file it has in another block and leaves it there."""
        elsewhere = self._unregistered(block_name, files, operation)
        if elsewhere:
            lfn = elsewhere[0].lfn
            places = [f.block_name for f in self._outputs.files("logical_file_name", lfn, valid_only=False, operation=operation)]
            detail = f"{len(elsewhere)} files did not get into {block_name}; first {lfn}, which is in {places or 'no block'}"
            raise ServiceRejected(SERVICE, operation, detail)

    def _post(self, path: str, body: object, operation: str) -> None:
        # Existing objects answer 200 and stay as they are, so these may be sent again.
        self._writer.send_json("POST", path, operation=operation, body=body, tries=_WRITE_TRIES)

    def _put_query(self, path: str, params: dict[str, str | int], operation: str) -> None:
        self._writer.send_json("PUT", path, operation=operation, params=params, tries=_WRITE_TRIES)

    def _put_body(self, path: str, body: object, operation: str) -> None:
        self._writer.send_json("PUT", path, operation=operation, body=body, tries=_WRITE_TRIES)


def _batches(files: Sequence[DbsFile]) -> Iterator[list[DbsFile]]:
    """Groups of at most so many files and, beyond one file, so many lumis."""
    batch: list[DbsFile] = []
    lumis = 0
    for file in files:
        count = sum(len(pairs) for pairs in file.lumis.values())
        if batch and (len(batch) == _BATCH_FILES or lumis + count > _BATCH_LUMIS):
            yield batch
            batch, lumis = [], 0
        batch.append(file)
        lumis += count
    if batch:
        yield batch
