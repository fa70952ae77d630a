"""What ``plan_request`` needs of a document: splitting of every task, input or generation, sites, resources.

No service is asked and no name becomes a path, so names, outputs and configurations are not checked here, and what does not
change how work is cut (pileup, GPUs) is left alone; :func:`parse` judges a document that is to be run. Formats:
docs/splitting.md, The planner's formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dags_app.planning.specs import InputFileSpec, SplittingSpec, StepSpec, TaskSpec, WorkflowSpec
from requests_app.intake.chain import CHAINS, RERECO_STEP, TASK_CHAIN, Part
from requests_app.intake.features import misplaced_work
from requests_app.intake.known import PLAN_ONLY
from requests_app.intake.lexicon import NameRule
from requests_app.intake.parse import SUPPORTED_TYPES, read_type, whole_document
from requests_app.intake.resources import read_resources, read_sites
from requests_app.intake.steps import MIN_FILTER_EFFICIENCY
from requests_app.intake.tasks import with_splitting
from requests_app.intake.values import BIGINT_MAX, flag, is_set, mapping, real, shown, whole
from requests_app.intake.work import read_generation, read_input
from wms2.errors import DocumentRefused, Problem

#: Planning compares site names and does no more with them.
_ANY_SITE = NameRule("site", r"[A-Za-z0-9_.-]+", 100, "letters, digits, '.', '_' and '-'")
_HALT, _TIME_LIMIT = "halt_job_on_file_boundaries", "job_time_limit"


def prepare_plan_spec(raw: object, *, files_given: bool) -> WorkflowSpec:
    """The part of a ``WorkflowSpec`` that splitting reads: no outputs, and steps only where tasks read one another.

    Args:
        raw: a document in any accepted form; without ``RequestType`` the part it has (``Step1``, ``Task1``) names the chain.
        files_given: whether there are input files; generation reads none.

    Raises:
        DocumentRefused: with every problem, by field. ``SplittingParams`` may hold ``halt_job_on_file_boundaries`` and
            ``job_time_limit``.
    """
    document = whole_document(raw)
    findings = document.findings
    first = _first_step(document)
    resources = read_resources(document, (first,))
    if first.prefix and not is_set(first.own.get("InputDataset")):
        work = read_generation(first, resources.time_per_event_seconds)
        if files_given:
            findings.problem("files", "the request generates its events and reads no files; give an empty list")
    else:
        work = read_input(first, resources.time_per_event_seconds)
        if not files_given:
            findings.warn("files", "none given, so there are no jobs: the request reads an input dataset")
    for key, text in misplaced_work(first):
        findings.warn(key, text)
    white, black = read_sites(document, _ANY_SITE)
    trusted = document.read("TrustSitelists", flag, fallback=False)
    splitting = _with_params(work.splitting, first)
    tasks = _tasks(document, first)
    findings.refuse_if_any()
    return WorkflowSpec(
        request_name=str(document.own.get("RequestName") or document.own.get("RequestString") or ""),
        campaign="",
        steps=tuple(step for _, step in tasks),
        outputs=(),
        resources=resources,
        splitting=splitting,
        generation=work.generation,
        input=work.input,
        site_whitelist=white,
        site_blacklist=black,
        trust_sitelists=trusted,
        tasks=tuple(task for task, _ in tasks),
        warnings=findings.warnings,
    )


def _first_step(document: Part) -> Part:
    """The part that does the request's work. Without a type, the document that has a ``Step1`` or ``Task1`` is such a chain."""
    if is_set(document.own.get("RequestType")):
        request_type = read_type(document)
        if request_type not in SUPPORTED_TYPES:
            raise DocumentRefused(document.findings.problems)  # where such a document keeps the rest is not known
        kind = CHAINS.get(request_type)
    else:
        kind = next((kind for kind in CHAINS.values() if f"{kind.part}1" in document.own), None)
    if kind is None:
        return replace(document, number=1, name=RERECO_STEP)
    own: Mapping[str, object] = document.require(f"{kind.part}1", mapping, {})
    return document.part(kind, 1, own)


def refuse_unknown_blocks(spec: WorkflowSpec, files: Sequence[InputFileSpec]) -> None:
    """Block lists choose among files only if every file names its block.

    Raises:
        DocumentRefused: names the first file without one.
    """
    wanted = spec.input
    if wanted is None or not (wanted.block_whitelist or wanted.block_blacklist):
        return
    for number, file in enumerate(files):
        if not file.block:
            text = f"is missing, and the document has block lists: {file.lfn} could be in any block"
            raise DocumentRefused([Problem(f"files.{number}.block", text)])


def _tasks(document: Part, first: Part) -> list[tuple[TaskSpec, StepSpec]]:
    """The tasks of a TaskChain that has more than one, each as one step; nothing for other documents."""
    parts = [first]
    while first.kind is TASK_CHAIN and isinstance(own := document.own.get(f"Task{len(parts) + 1}"), dict):
        parts.append(document.part(first.kind, len(parts) + 1, own))
    if len(parts) == 1:
        return []
    found: list[tuple[TaskSpec, StepSpec]] = []
    for part in parts:
        resources = read_resources(document, (part,))
        reads = _input_task(part, [task.name for task, _ in found])
        step = StepSpec(
            part.number, part.name, "", "", (), "", threads=1, event_streams=0, input_step=reads,
            filter_efficiency=part.read("FilterEfficiency", real(MIN_FILTER_EFFICIENCY, 1.0), 1.0),
        )  # fmt: skip
        task = TaskSpec(part.number, part.name, (part.name,), resources, input_task=reads, input_step=reads)
        found.append((task if part is first else with_splitting(task, part), step))
    return found


def _input_task(part: Part, earlier: list[str]) -> str | None:
    """The task that a later one reads; the first reads none."""
    if not earlier:
        return None
    value = part.own.get("InputTask")
    if value not in earlier:
        part.problem("InputTask", f"{shown(value)} is no earlier task (earlier: {', '.join(earlier)})")
    if not part.name or part.name in earlier:
        part.problem("TaskName", f"{part.name} is already the name of a task" if part.name else "is missing")
    return str(value)


def _with_params(splitting: SplittingSpec, first: Part) -> SplittingSpec:
    holder = first if is_set(first.own.get(PLAN_ONLY)) else first.document
    found: Mapping[str, object] = holder.read(PLAN_ONLY, mapping, {})
    params = replace(first, own=found, prefix=f"{holder.prefix}{PLAN_ONLY}.")
    for key in found:
        if key not in (_HALT, _TIME_LIMIT):
            params.problem(key, f"is not known; {_HALT} and {_TIME_LIMIT} are, the rest has fields of its own")
    return replace(
        splitting,
        halt_job_on_file_boundaries=params.read(_HALT, flag, splitting.halt_job_on_file_boundaries),
        job_time_limit_seconds=params.read(_TIME_LIMIT, whole(1, BIGINT_MAX), splitting.job_time_limit_seconds),
    )
