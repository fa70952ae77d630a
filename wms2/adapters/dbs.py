"""DBS: registration of outputs, one ``bulkblocks`` per block, and reading of inputs (docs/design/services.md, DBS).

Nothing else creates datasets, blocks or files: the calls for one of them alone store wrong configurations (ADR 0016). DBS adds
files to a block that is registered, passes over one that lies in another block, stores any counts, and takes a PUT of files
without a name for one of all files: the guards against these are here. An answer is not believed: the block is read back and
compared. One writer per block is the caller's duty (effects of a block are ordered).
"""

from __future__ import annotations

from collections.abc import Iterable

from wms2.adapters.caller import TRIES, pause
from wms2.adapters.dbs_names import SERVICE, VALIDATION_CODE, check_name
from wms2.adapters.dbs_payloads import block_payload, differences, is_in_part, stored_otherwise, validate_block
from wms2.adapters.dbs_queries import DbsQueries, dbs_fault
from wms2.adapters.http import Credentials, HttpService, Params
from wms2.adapters.types import BlockSpec, DbsFile, DbsFileInfo
from wms2.errors import NotFoundInService, ServiceRejected, ServiceUnavailable

CREATE_BY = "WMS2"
#: A lumi is a row in DBS; a block of some hundred files is stored in one transaction, while the client waits.
BULK_TIMEOUT_FACTOR = 4.0
#: DBS's code for a file that it does not insert.
INSERT_FILE_CODE = 310
_ACCESS_TYPES = frozenset({"VALID", "PRODUCTION", "INVALID", "DELETED", "DEPRECATED"})


class Dbs(DbsQueries):
    """One DBS instance: registration of outputs, and what ``DbsQueries`` reads of inputs.

    The reader (``…/DBSReader``) is for inputs; what was written is read back from the writer: a reader may lag behind.
    """

    def __init__(
        self,
        reader_url: str,
        writer_url: str,
        *,
        timeout_seconds: float = 30.0,
        credentials: Credentials | None = None,
    ) -> None:
        def service(url: str, factor: float = 1.0) -> HttpService:
            limit = timeout_seconds * factor
            return HttpService(SERVICE, url, timeout_seconds=limit, credentials=credentials, fault_parser=dbs_fault)

        self._writer, self._bulk = service(writer_url), service(writer_url, BULK_TIMEOUT_FACTOR)
        #: What was written, as the writer has it.
        self.outputs = DbsQueries(self._writer)
        super().__init__(service(reader_url))

    # --- outputs: registration

    def register_block(self, block: BlockSpec) -> tuple[str, ...]:
        """Register a whole block with all it hangs on; done already if DBS has it with the same contents, so it may be repeated.

        A block that was begun open, file by file, and holds the same, is closed.

        Returns:
            What DBS could not store as it was sent, in words, though the block is whole: ``dbs_payloads.stored_otherwise``.

        Raises:
            ServiceUnavailable: it is not known whether the block is registered; repeat the call.
            ServiceRejected: DBS refuses it, or has the block with other contents, or one of its files in another block; or the
                dataset exists and is not live (INVALID, DELETED, …).
        """
        operation = "register_block"
        validate_block(block)
        stored = self._registered(block, operation)
        if stored is not None:
            return stored
        dataset = self.outputs.dataset(block.dataset.dataset)
        if dataset is not None and not dataset.is_live:
            detail = f"{dataset.dataset} exists as {dataset.access_type}; revive it or choose another processing version"
            raise ServiceRejected(SERVICE, operation, detail)
        return self._post_block(block, operation)

    def _post_block(self, block: BlockSpec, operation: str) -> tuple[str, ...]:
        """Send the block, read it back; after a failure send it again only if it is not there.

        A refusal is looked at too: it may come from an earlier call that timed out and was still being carried out.
        """
        body = block_payload(block, CREATE_BY)
        for attempt in range(1, TRIES + 1):
            error: ServiceUnavailable | ServiceRejected | None = None
            try:
                self._bulk.send_json("POST", "/bulkblocks", operation=operation, body=body)
            except (ServiceUnavailable, ServiceRejected) as caught:
                error = caught
            try:
                stored = self._registered(block, operation)
            except ServiceUnavailable as there:
                if isinstance(error, ServiceRejected):  # which may be why it is there in part
                    raise ServiceUnavailable(SERVICE, operation, f"{there.detail}; DBS refused it: {error.detail}") from there
                raise
            if stored is not None:
                return stored
            if error is None:
                raise ServiceUnavailable(SERVICE, operation, f"{block.block_name} was accepted and cannot be read back yet")
            if error.code == INSERT_FILE_CODE:  # in concurrent mode the cause is lost: "concurrency error"
                self._refuse_files_of_other_blocks(block, block.files, operation)
            if attempt == TRIES or isinstance(error, ServiceRejected):
                raise error
            pause(attempt)
        raise AssertionError("the last try returns or raises")

    def _registered(self, block: BlockSpec, operation: str) -> tuple[str, ...] | None:
        """What DBS stores otherwise of the block, None if it does not have it; closed, if it was begun open. Raises
        ServiceRejected: it has it with other contents; ServiceUnavailable: it has a part of it."""
        known = self.outputs.block(block.block_name)
        if known is None:
            return None
        files = list(self.outputs.files(block.block_name, valid_only=False, operation=operation))
        # all files of a block are stored with the same list of configurations: one stands for all
        configs = self.outputs.configs_of_file(block.files[0].lfn)
        lumis = list(self.outputs.file_lumis(block.block_name))
        found = differences(block, known, files, lumis, configs)
        if found:
            there = {file.lfn for file in files}
            self._refuse_files_of_other_blocks(block, [file for file in block.files if file.lfn not in there], operation)
            if is_in_part(block, known, files, lumis, configs):
                detail = f"{block.block_name} is there in part, as of a call that is still carried out: {'; '.join(found)}"
                raise ServiceUnavailable(SERVICE, operation, detail)
            detail = f"{block.block_name} is registered, and not as it should be: {'; '.join(found)}; nothing is added to it"
            raise ServiceRejected(SERVICE, operation, detail)
        if known.is_open:
            self._put("/blocks", operation, params={"block_name": block.block_name, "open_for_writing": 0})
        return stored_otherwise(block, configs)

    def _refuse_files_of_other_blocks(self, block: BlockSpec, files: Iterable[DbsFile], operation: str) -> None:
        """DBS passes over a file that it has in another block, or says only that something went wrong. Raises ServiceRejected:
        one of the files is in another block."""
        for file in files:
            for known in self.outputs.known_as(file.lfn, operation):
                if known.block_name != block.block_name:
                    detail = f"{file.lfn} of {block.block_name} is in {known.block_name}; a file cannot change its block"
                    raise ServiceRejected(SERVICE, operation, detail)

    def block_files(self, block_name: str) -> list[DbsFileInfo]:
        """All files of a block as the writer has them, valid or not."""
        return list(self.outputs.files(block_name, valid_only=False, operation="block_files"))

    # --- outputs: invalidation

    def invalidate_files(self, lfns: Iterable[str]) -> int:
        """Mark files invalid, one call each; repeatable. Returns how many. A block: all its files, or the dataset.

        The only PUT of files: DBS takes a list of names, or none, for a change of **every file it has**, and answers 200.

        Raises:
            ServiceRejected: one is not one file name; it was not sent.
        """
        operation, count = "invalidate_files", 0
        for lfn in lfns:
            if not isinstance(lfn, str):
                raise ServiceRejected(SERVICE, operation, f"{lfn!r} is not one file name; nothing was sent", VALIDATION_CODE)
            check_name("logical_file_name", lfn, operation=operation)
            self._put("/files", operation, body={"logical_file_name": lfn, "is_file_valid": 0})
            count += 1
        return count

    def valid_file(self, dataset: str) -> str:
        """A valid file of the dataset, registered by any client; empty if there is none, or DBS has the dataset as INVALID.

        Of the streamed list only the beginning is read: ``/filesummaries`` would count, but is Oracle's alone.
        """
        first = next(self.outputs.files(dataset, operation="valid_file"), None)
        return first.lfn if first is not None else ""

    def set_dataset_access_type(self, dataset: str, access_type: str) -> None:
        """Set VALID, PRODUCTION, INVALID, DELETED or DEPRECATED. Raises NotFoundInService: no such dataset (DBS itself does not
        say)."""
        operation = "set_dataset_access_type"
        if access_type not in _ACCESS_TYPES:
            detail = f"access type {access_type!r} is not one of {', '.join(sorted(_ACCESS_TYPES))}"
            raise ServiceRejected(SERVICE, operation, detail, VALIDATION_CODE)
        check_name("dataset", dataset, operation=operation)
        existing = self.outputs.dataset(dataset)
        if existing is None:
            raise NotFoundInService(SERVICE, operation, f"{dataset} does not exist")
        if existing.access_type != access_type:
            self._put("/datasets", operation, body={"dataset": dataset, "dataset_access_type": access_type})

    def turn_dataset(self, dataset: str, before: str, after: str) -> str:
        """Change the access type if it is ``before``; any other was decided elsewhere, and stays.

        Returns the access type that it has now; empty if DBS does not know the dataset.
        """
        check_name("dataset", dataset, operation="turn_dataset")
        known = self.outputs.dataset(dataset)
        if known is None or known.access_type != before:
            return known.access_type if known is not None else ""
        self.set_dataset_access_type(dataset, after)
        return after

    # --- calls

    def _put(self, path: str, operation: str, *, params: Params = None, body: object = None) -> None:
        self._writer.send_json("PUT", path, operation=operation, params=params, body=body, tries=TRIES)
