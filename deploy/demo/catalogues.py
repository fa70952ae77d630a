"""What DBS, Rucio and the schedd say, asked the way anybody would: over HTTP, with Rucio's client and HTCondor's bindings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import htcondor2
import requests
from rucio.common.exception import DataIdentifierNotFound

from deploy.demo.facts import CondorJob, DbsBlock, DbsFile, LumiId, RucioBlock, RucioFile, Rule

_TIMEOUT_SECONDS = 60
_NAMES_PER_CALL = 500
_PROJECTION = ["ClusterId", "WMS2_DagID", "JobStatus", "ExitCode"]


def statuses_in_reqmgr2(url: str, name: str) -> tuple[str, ...]:
    """What a request went through there."""
    headers = {"Accept": "application/json"}
    answer = requests.get(f"{url}/request", {"name": name}, headers=headers, timeout=_TIMEOUT_SECONDS)
    answer.raise_for_status()
    return tuple(step["Status"] for step in answer.json()["result"][0][name]["RequestTransition"])


class Dbs:
    """The reader."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()

    def _get(self, api: str, **params: str | int) -> list[dict[str, Any]]:
        answer = self._session.get(f"{self._url}/{api}", params=params, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        rows: list[dict[str, Any]] = answer.json()
        return rows

    def has_dataset(self, name: str) -> bool:
        """Whether who asks for it sees it: by default DBS lists VALID datasets alone."""
        return any(row["dataset"] == name for row in self._get("datasets", dataset=name))

    def blocks(self, dataset: str) -> tuple[DbsBlock, ...]:
        """Blocks of a dataset."""
        return tuple(
            DbsBlock(
                name=row["block_name"],
                is_open=row["open_for_writing"] != 0,
                origin_site=row.get("origin_site_name") or "",
                file_count=row["file_count"],
                size_bytes=row["block_size"],
            )
            for row in self._get("blocks", dataset=dataset, detail=1)
        )

    def parents(self, dataset: str) -> frozenset[str]:
        """Datasets that it was made from."""
        return frozenset(row["parent_dataset"] for row in self._get("datasetparents", dataset=dataset))

    def files(self, dataset: str, blocks: Iterable[DbsBlock]) -> tuple[DbsFile, ...]:
        """Files of a dataset with lumis and parents, withdrawn files included; without both when no blocks are given."""
        lumis: dict[str, dict[LumiId, int | None]] = defaultdict(dict)
        parents: dict[str, set[str]] = defaultdict(set)
        for block in blocks:
            for row in self._get("fileparents", block_name=block.name):
                parents[row["logical_file_name"]].add(row["parent_logical_file_name"])
            for row in self._get("filelumis", block_name=block.name):
                numbers, counts = row["lumi_section_num"], row.get("event_count")
                for position, lumi in enumerate(numbers if isinstance(numbers, list) else [numbers]):
                    count = counts[position] if isinstance(counts, list) else counts
                    lumis[row["logical_file_name"]][row["run_num"], lumi] = count
        return tuple(
            DbsFile(
                lfn=row["logical_file_name"],
                block=row["block_name"],
                size_bytes=row["file_size"],
                adler32=row["adler32"],
                events=row["event_count"],
                is_valid=row["is_file_valid"] == 1,
                lumis=lumis[row["logical_file_name"]],
                parents=frozenset(parents[row["logical_file_name"]]),
            )
            for row in self._get("files", dataset=dataset, detail=1)
        )


class Rucio:
    """One account's view of one scope, through a ``rucio.client.Client``."""

    def __init__(self, client: Any, scope: str) -> None:
        self._client, self._scope = client, scope
        self.tape_rses = frozenset(row["rse"] for row in self._client.list_rses("rse_type=TAPE"))
        self.disk_rses = frozenset(row["rse"] for row in self._client.list_rses()) - self.tape_rses

    def roots(self, behind: Path) -> dict[str, Path]:
        """Disk RSE -> the directory that an LFN is appended to; ``behind`` a server, there is one for each RSE."""
        return {
            rse: Path(protocol["prefix"]) if protocol["scheme"] == "file" else behind / rse
            for rse in sorted(self.disk_rses)
            for protocol in self._client.get_protocols(rse)
        }

    def blocks(self, dataset: str) -> tuple[RucioBlock, ...]:
        """Blocks that the container holds; none when there is no such container."""
        try:
            names = [row["name"] for row in self._client.list_content(self._scope, dataset)]
        except DataIdentifierNotFound:
            return ()
        return tuple(RucioBlock(name, bool(self._client.get_did(self._scope, name)["open"])) for name in names)

    def files(self, blocks: Iterable[RucioBlock]) -> tuple[RucioFile, ...]:
        """Files of blocks with their available replicas on disk."""
        found = []
        for block in blocks:
            names = [row["name"] for row in self._client.list_content(self._scope, block.name)]
            found += [
                RucioFile(
                    lfn=row["name"],
                    block=block.name,
                    size_bytes=row["bytes"],
                    adler32=row["adler32"],
                    pfns={
                        rse: pfns[0]
                        for rse, pfns in row["rses"].items()
                        if rse in self.disk_rses and row["states"].get(rse) == "AVAILABLE"
                    },
                )
                for row in self.replicas(names)
            ]
        return tuple(found)

    def replicas(self, lfns: list[str]) -> list[dict[str, Any]]:
        """Rucio's own records of the files' replicas."""
        rows: list[dict[str, Any]] = []
        for start in range(0, len(lfns), _NAMES_PER_CALL):
            dids = [{"scope": self._scope, "name": name} for name in lfns[start : start + _NAMES_PER_CALL]]
            rows += self._client.list_replicas(dids, all_states=True)
        return rows

    def pfns(self, lfns: list[str]) -> dict[str, str]:
        """LFN -> PFN of one replica on disk; without those that have none."""
        found = {}
        for row in self.replicas(lfns):
            on_disk = [pfns[0] for rse, pfns in row["rses"].items() if rse in self.disk_rses]
            if on_disk:
                found[row["name"]] = on_disk[0]
        return found

    def rules(self) -> tuple[Rule, ...]:
        """All rules of the scope that stay: one that is deleted goes an hour later."""
        return tuple(
            Rule(row["id"], row["name"], row["rse_expression"], row["state"], row["copies"])
            for row in self._client.list_replication_rules(filters={"scope": self._scope})
            if row["expires_at"] is None
        )


def outer_dagmans(collector: str, schedd_name: str, instance: str, token_dir: str) -> tuple[CondorJob, ...]:
    """All outer DAGMan jobs of an instance, in the queue and in the history.

    Raises:
        htcondor2.HTCondorException: the collector or the schedd does not answer.
    """
    if token_dir:
        htcondor2.param["SEC_TOKEN_DIRECTORY"] = token_dir
        htcondor2.param["SEC_CLIENT_AUTHENTICATION_METHODS"] = "IDTOKENS"
    location = htcondor2.Collector(collector).locate(htcondor2.DaemonType.Schedd, schedd_name)
    if location is None:
        raise htcondor2.HTCondorException(f"the collector {collector} knows no schedd {schedd_name}")
    schedd = htcondor2.Schedd(location)
    constraint = f'JobUniverse == 7 && DAGManJobId =?= undefined && WMS2_Instance =?= "{instance}"'
    ads = [*schedd.query(constraint, _PROJECTION), *schedd.history(constraint, _PROJECTION, -1)]
    jobs = [CondorJob(ad["ClusterId"], ad.get("WMS2_DagID", ""), ad["JobStatus"], ad.get("ExitCode")) for ad in ads]
    return tuple(sorted(jobs, key=lambda job: job.cluster))
