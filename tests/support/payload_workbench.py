"""Runs a work unit's nodes as processes, the way HTCondor and DAGMan do it: scratch directory, transfer, ads, scripts.

Only HTCondor is missing; the payload is the built zipapp and the programs on PATH are the simulated ones.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uproot

from dags_app.payload.contract.codes import POST_CALL_AGAIN
from dags_app.payload.contract.convert import read, to_json
from dags_app.payload.contract.reading import Value
from dags_app.payload.contract.rules import Limits, LogLimits, Rule, RuleBook
from tests.support.payload_psets import GENERATE, READ, pset
from tests.support.payload_schemas import validate
from tests.support.places import ROOT

SHIPPED_RULES = ROOT / "dags_app/data/failure_rules.json"
WORKFLOW_ID = "8f14e45f-ceea-467f-8a1c-9b1d2f3a4b5c"
SITES = {"T1_US_FNAL": "T1_US_FNAL_Disk", "T2_CH_CERN": "T2_CH_CERN"}
EXECUTE_EVENT = (
    "001 ({cluster:03d}.000.000) 2026-11-21 10:00:00 Job executing on host: <127.0.0.1:9618>\n"
    '\tSlotName: slot1_1@localhost\n\tCpus = 1\n\tGLIDEIN_CMSSite = "{site}"\n...\n'
)
TERMINATE_EVENT = (
    "005 ({cluster:03d}.000.000) 2026-11-21 10:00:07 Job terminated.\n\t(1) Normal termination (return value {value})\n"
    "\t\tUsr 0 00:00:02, Sys 0 00:00:01  -  Run Remote Usage\n"
    "\tPartitionable Resources :    Usage  Request Allocated\n\t   Memory (MB)          :       44       64        64\n...\n"
)
#: With the logs of every job kept, for tests to look into.
LIMITS = Limits(60, 3000, 0, LogLimits(share_of_successes=1.0))


def shipped_rules() -> tuple[Rule, ...]:
    """The rules that WMS2 ships."""
    document = json.loads(SHIPPED_RULES.read_text())
    return tuple(read(Value(item, item["name"]), Rule) for item in document["rules"])


def step(number: int, name: str, outputs: list[str], source: tuple[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A step of ``job.json``; ``source`` is (step, module)."""
    return {
        "number": number,
        "name": name,
        "pset": f"psets/step{number}_{name}.py",
        "cmssw_version": "CMSSW_14_0_0",
        "scram_arch": ["el8_amd64_gcc12"],
        "global_tag": "140X_mcRun3_v1",
        "threads": 1,
        "event_streams": 0,
        "input_step": source[0] if source else None,
        "input_module": source[1] if source else None,
        "keep_output": True,
        "output_modules": outputs,
        "seeding": "AutomaticSeeding",
        **more,
    }


def output(step_name: str, module: str, tier: str, merge: str = "edm") -> dict[str, Any]:
    """A kept output of ``job.json``."""
    return {
        "step": step_name,
        "module": module,
        "tier": tier,
        "dataset": f"/Primary/Era-Proc-v1/{tier}",
        "merged_lfn_base": f"/store/mc/Era/Primary/{tier}/Proc-v1",
        "unmerged_lfn_base": f"/store/unmerged/Era/Primary/{tier}/Proc-v1",
        "merge": merge,
    }


def job_document(steps: list[dict[str, Any]], outputs: list[dict[str, Any]], **merge: int) -> dict[str, Any]:
    """A whole ``job.json``."""
    return {
        "schema": "wms2.job/1",
        "instance": "test-1",
        "request_name": "request_1",
        "workflow_id": WORKFLOW_ID,
        "dag_id": "dag-1",
        "round": 0,
        "steps": steps,
        "outputs": outputs,
        "merge": {"min_bytes": 1, "max_bytes": 10**9, "max_events": 10**9, **merge},
    }


def generating_node(index: int, events: int, per_lumi: int, first_event: int = 1, first_lumi: int = 1) -> dict[str, Any]:
    """The ``index``-th of nodes that generate ``events`` events each, one after the other."""
    lumis = -(-events // per_lumi)
    start = first_event + index * events
    return {
        "node": f"proc_{index:06d}",
        "events": events,
        "generate": {
            "run": 1,
            "first_event": start,
            "last_event": start + events - 1,
            "first_lumi": first_lumi + index * lumis,
            "last_lumi": first_lumi + (index + 1) * lumis - 1,
            "events_per_lumi": per_lumi,
        },
        "files": [],
        "mask": None,
    }


def reading_node(index: int, files: list[dict[str, Any]], mask: dict[str, Any] | None = None) -> dict[str, Any]:
    """A node that reads files."""
    return {"node": f"proc_{index:06d}", "events": 0, "generate": None, "files": files, "mask": mask}


def input_file(lfn: str, events: int, first: int | None = None, last: int | None = None) -> dict[str, Any]:
    """An input file of ``unit.json``."""
    return {"lfn": lfn, "size_bytes": 1, "events": events, "first_event": first, "last_event": last, "parents": []}


def write_sites(root: Path) -> None:
    """Storage descriptions of two sites, with their storage below ``root``."""
    for site, rse in SITES.items():
        directory = root / "siteconf" / site
        directory.mkdir(parents=True, exist_ok=True)
        protocols = [{"protocol": "file", "access": "local", "prefix": str(root / "storage" / rse)}]
        volumes = [{"site": site, "volume": rse, "protocols": protocols, "type": "DISK", "rse": rse}]
        (directory / "storage.json").write_text(json.dumps(volumes))
        (root / "storage" / rse).mkdir(parents=True, exist_ok=True)


@dataclass(slots=True)
class Workbench:
    """A DAG directory with one unit, two sites with storage, and the means to run nodes."""

    root: Path
    payload: Path
    programs: Path
    unit: str = "mg_000000"
    site: str = "T1_US_FNAL"
    fence: int = 1
    variables: dict[str, str] = field(default_factory=dict)
    clusters: int = 100
    limits: Limits = LIMITS
    cores: int = 1
    memory_mb: int = 4000
    path: str = "/usr/bin:/bin"
    machine_ad: str = ""
    job_ad: str = ""
    #: Files that HTCondor puts beside a job besides, by name.
    beside: dict[str, str] = field(default_factory=dict)

    @property
    def dag(self) -> Path:
        return self.root / "dag"

    @property
    def place(self) -> Path:
        return self.dag / self.unit

    def storage(self, site: str | None = None) -> Path:
        return self.root / "storage" / SITES[site or self.site]

    def stored(self, lfn: str, site: str | None = None) -> Path:
        return Path(f"{self.storage(site)}{lfn}")

    def prepare(self, job: dict[str, Any], nodes: list[dict[str, Any]], psets: dict[str, str]) -> None:
        """Write the directory as the planner would, and the sites."""
        self.place.mkdir(parents=True)
        (self.dag / "job.json").write_text(json.dumps(job))
        (self.dag / "avoid.inc").write_text("DAG_AVOID = \n")
        (self.dag / "rules.json").write_text(json.dumps(to_json(RuleBook(shipped_rules(), self.limits))))
        self.stamp(self.fence)
        unit = {"schema": "wms2.unit/1", "unit": self.unit, "index": int(self.unit[3:]), "jobs": nodes}
        (self.place / "unit.json").write_text(json.dumps(unit))
        with tarfile.open(self.dag / "sandbox.tar.gz", "w:gz") as archive:
            for name, text in psets.items():
                entry = tarfile.TarInfo(f"psets/{name}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        write_sites(self.root)
        (self.place / "site.inc").write_text(f"ELECTED_SITE = {self.site}\n")
        (self.place / "elected.log").write_text(f"2026-11-21T10:00:00Z {self.site}\n")
        self.write_submit_files([node["node"] for node in nodes])

    def write_submit_files(self, nodes: list[str]) -> None:
        """What POST scripts read of the DAG's own files: which site the unit may land at, what a node asks for."""
        lines = [f'VARS landing sites="{",".join(SITES)}"']
        lines += [f'JOB {node} ../proc.sub\nVARS {node} disk_kb="1" wall_minutes="60"' for node in nodes]
        (self.place / "group.dag").write_text("\n".join([*lines, "JOB merge ../merge.sub"]) + "\n")
        (self.place / "memory.inc").write_text("")
        for name, memory_mb in (("proc", 2000), ("merge", 1000)):
            text = f"request_cpus = 1\nrequest_memory = $(MEMORY_$(JOB):{memory_mb})\n"
            (self.dag / f"{name}.sub").write_text(text)

    def profile(self, **steps: tuple[int, ...]) -> None:
        """How steps run from now on: processes, threads and MB of one."""
        named = {step: dict(zip(("processes", "threads", "rss_mb"), each, strict=False)) for step, each in steps.items()}
        document = {"schema": "wms2.step_profile/1", "version": 1, "steps": named}
        validate("step_profile", document)
        (self.dag / "step_profile.json").write_text(json.dumps(document))

    def copy_to(self, root: Path) -> Workbench:
        """The same directory and storage somewhere else."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        copied = replace(self, root=root, variables=dict(self.variables))
        write_sites(root)
        return copied

    def stamp(self, fence: int) -> None:
        """What WMS2 does before a submission."""
        self.fence = fence
        (self.dag / "fence.dag.inc").write_text(f'VARS ALL_NODES My.WMS2_Fence="{fence}"\n')

    def environment(self, scratch: Path) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}:{self.path}",
            "SITECONF_ROOT": str(self.root / "siteconf"),
            "WMS2_STAGE_OUT_PAUSES": "",
            "_CONDOR_JOB_AD": str(scratch / ".job.ad"),
            "_CONDOR_MACHINE_AD": str(scratch / ".machine.ad"),
            **self.variables,
        }

    def start(self, command: str, node: str, attempt: int = 0, again: Attempt | None = None) -> Attempt:
        """Start an attempt in its own scratch directory, with what the submit file of its role transfers.

        ``again``: HTCondor itself starts that job once more, under the same number.
        """
        self.clusters += 0 if again else 1
        cluster = again.cluster if again else self.clusters
        scratch = self.root / "execute" / f"dir_{cluster}{'_again' if again else ''}"
        scratch.mkdir(parents=True)
        inputs = {
            "job": ["../job.json", "../sandbox.tar.gz", "unit.json"],
            "merge": ["../job.json", "unit.json", "merge_input.json"],
            "cleanup": ["../job.json", "unit.json", "merge_input.json", "merge_output.json"],
        }[command]
        if command == "job" and (self.dag / "pileup.json").is_file():
            inputs.append("../pileup.json")
        if command == "job" and (self.dag / "step_profile.json").is_file():
            inputs.append("../step_profile.json")
        if (self.place / f"{node}.input.json").exists():
            inputs.append(f"{node}.input.json")
        for name in inputs:
            shutil.copy(self.place / name, scratch)
        job_ad = f'ClusterId = {cluster}\nProcId = 0\nGlobalJobId = "schedd@test#{cluster}.0#1"\n'
        (scratch / ".job.ad").write_text(job_ad + f'WMS2_Unit = "{self.unit}"\nWMS2_Fence = {self.fence}\n{self.job_ad}')
        for name, text in self.beside.items():
            (scratch / name).parent.mkdir(exist_ok=True)
            (scratch / name).write_text(text)
        machine_ad = f'GLIDEIN_CMSSite = "{self.site}"\nCpus = {self.cores}\nMemory = {self.memory_mb}\n{self.machine_ad}'
        (scratch / ".machine.ad").write_text(machine_ad)
        stderr = (self.place / f"{node}.{attempt}.err").open("wb")
        with stderr:
            process = subprocess.Popen(
                [str(self.payload), command, "--node", node, "--attempt", str(attempt)],
                cwd=scratch,
                env=self.environment(scratch),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        return Attempt(self, node, attempt, scratch, cluster, process, {path.name for path in scratch.iterdir()})

    def run(self, command: str, node: str, attempt: int = 0) -> Attempt:
        """Run an attempt to its end and bring its files back."""
        started = self.start(command, node, attempt)
        started.finish()
        return started

    def script(self, *words: object, directory: Path | None = None) -> int:
        """Run a DAGMan script in the unit's directory."""
        command = [str(self.payload), *map(str, words)]
        return subprocess.run(command, cwd=directory or self.place, env={"PATH": self.path}, check=False).returncode

    def post(self, done: Attempt, max_retries: int = 3) -> int:
        """The POST script of an attempt, called again like DAGMan does while it defers."""
        return self.settled("post", done.node, done.value, done.attempt, max_retries, f"{done.cluster}.0")

    def settled(self, *words: object) -> int:
        """A script's last exit status after at most 100 calls."""
        for _ in range(100):
            status = self.script(*words)
            if status != POST_CALL_AGAIN:
                return status
        raise AssertionError("deferred for ever")

    def logs(self, node: str, attempt: int = 0) -> Path:
        """The packed logs of the newest job of an attempt."""
        return max(self.place.glob(f"{node}.{attempt}.*.logs.tar.gz"), key=lambda path: path.stat().st_mtime_ns)

    def read(self, name: str) -> dict[str, Any]:
        """A JSON side file of the unit."""
        document: dict[str, Any] = json.loads((self.place / name).read_text())
        return document

    def process(self, command: str, node: str, attempt: int = 0) -> Attempt:
        """An attempt and its POST script, both to end well."""
        return self.accepted(self.run(command, node, attempt))

    def accepted(self, done: Attempt) -> Attempt:
        """An attempt that ended, judged by its POST script; both well."""
        node, attempt = done.node, done.attempt
        assert done.value == 0, (self.place / f"{node}.{attempt}.report.json").read_text()
        assert self.post(done) == 0
        return done


@dataclass(slots=True)
class Attempt:
    """A started attempt."""

    bench: Workbench
    node: str
    attempt: int
    scratch: Path
    cluster: int
    popen: subprocess.Popen[bytes]
    given: set[str]
    value: int = -1

    @property
    def report(self) -> dict[str, Any]:
        return self.bench.read(f"{self.node}.{self.attempt}.report.json")

    def finish(self) -> None:
        """Wait; transfer every new file at the top of the scratch directory; log the events."""
        self.value = self.popen.wait(120)
        for name in sorted({path.name for path in self.scratch.iterdir()} - self.given):
            if (self.scratch / name).is_file():
                shutil.copy(self.scratch / name, self.bench.place)
        for log in ("cluster.log", "group.dag.nodes.log"):
            with (self.bench.place / log).open("a") as stream:
                stream.write(EXECUTE_EVENT.format(cluster=self.cluster, site=self.bench.site))
                stream.write(TERMINATE_EVENT.format(cluster=self.cluster, value=self.value))
        shutil.rmtree(self.scratch)


def chain(bench: Workbench, nodes: int, events: int, per_lumi: int, max_bytes: int = 130_000) -> None:
    """A unit of a chain of three steps whose middle output is not kept and whose last step has two outputs."""
    steps = [
        step(1, "GenSim", ["FEVTDEBUGoutput"]),
        step(2, "Digi", ["FEVTDEBUGHLToutput"], ("GenSim", "FEVTDEBUGoutput"), keep_output=False),
        step(3, "Reco", ["AODSIMoutput", "MINIAODSIMoutput"], ("Digi", "FEVTDEBUGHLToutput")),
    ]
    outputs = [
        output("GenSim", "FEVTDEBUGoutput", "GEN-SIM"),
        output("Reco", "AODSIMoutput", "AODSIM"),
        output("Reco", "MINIAODSIMoutput", "MINIAODSIM"),
    ]
    psets = {
        "step1_GenSim.py": pset("SIM", GENERATE, {"FEVTDEBUGoutput": "GEN-SIM"}),
        "step2_Digi.py": pset("HLT", READ, {"FEVTDEBUGHLToutput": "GEN-SIM-DIGI"}),
        "step3_Reco.py": pset("RECO", READ, {"AODSIMoutput": "AODSIM", "MINIAODSIMoutput": "MINIAODSIM"}),
    }
    job = job_document(steps, outputs, min_bytes=2_000, max_bytes=max_bytes)
    bench.prepare(job, [generating_node(index, events, per_lumi, 2**32 - 100, 7) for index in range(nodes)], psets)


HALF = "sizePerEventKB = cms.untracked.double(0.1),\n    filterEfficiency = cms.untracked.double(0.5)"


def task(number: int, name: str, source: tuple[str, str] | None = None) -> dict[str, Any]:
    step_name, module = source or (None, None)
    return {"number": number, "name": name, "steps": [name], "input_step": step_name, "input_module": module}


def event_numbers(path: Path) -> list[tuple[int, int, int]]:
    with uproot.open(path) as file:
        columns = file["Events"].arrays(["run", "luminosityBlock", "event"], library="np")
    return [tuple(map(int, row)) for row in zip(columns["run"], columns["luminosityBlock"], columns["event"], strict=True)]


SHARING_DIGI, SHARING_RECO = [f"t2_{index:06d}" for index in range(3)], [f"t3_{index:06d}" for index in range(2)]


def _part(name: str, number: int, reads: str, share: tuple[int, int, str]) -> dict[str, Any]:
    cut = dict(zip(("part", "parts", "by"), share, strict=True))
    return {
        "node": name, "task": number, "events": 7, "reads": [reads], "share": cut, "generate": None, "files": [], "mask": None,
    }  # fmt: skip


def chain_of_shares(bench: Workbench, filter_text: str = "") -> None:
    """One GenSim job (kept) of five lumis; three Digi nodes read it by lumi (handed on); two Reco nodes the first by events."""
    sim, digi = ("GenSim", "SIMoutput"), ("Digi", "DIGIoutput")
    job = job_document(
        [
            step(1, "GenSim", ["SIMoutput"]),
            step(2, "Digi", ["DIGIoutput"], sim, keep_output=False),
            step(3, "Reco", ["AODoutput"], digi),
        ],
        [output("GenSim", "SIMoutput", "GEN-SIM"), output("Reco", "AODoutput", "AOD")],
    )
    job["tasks"] = [task(1, "GenSim"), task(2, "Digi", sim), task(3, "Reco", digi)]
    base = "/store/unmerged/Era/Primary/DIGIoutput/Proc-v1"
    job["transient"] = [{"step": "Digi", "module": "DIGIoutput", "unmerged_lfn_base": base}]
    nodes = [generating_node(0, 20, 4) | {"task": 1}]
    nodes += [_part(node, 2, "proc_000000", (index, 3, "lumis")) for index, node in enumerate(SHARING_DIGI)]
    nodes += [_part(node, 3, SHARING_DIGI[0], (index, 2, "events")) for index, node in enumerate(SHARING_RECO)]
    whole = {"node": "t3_000002", "task": 3, "events": 7, "reads": SHARING_DIGI[1:], "generate": None, "files": [], "mask": None}
    bench.prepare(
        job,
        [*nodes, whole],
        {
            "step1_GenSim.py": pset("SIM", GENERATE, {"SIMoutput": "GEN-SIM"}, filter_text),
            "step2_Digi.py": pset("DIGI", READ, {"DIGIoutput": "DIGI"}),
            "step3_Reco.py": pset("RECO", READ, {"AODoutput": "AOD"}),
        },
    )
    validate("unit", bench.read("unit.json"))
