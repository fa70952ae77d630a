"""What reading a document gives before any service is asked. Owns the types between :func:`parse` and :func:`complete`."""

from __future__ import annotations

from dataclasses import dataclass

from dags_app.planning.specs import GenerationSpec, InputSpec, SplittingSpec, StepSpec, WorkflowSpec


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, and how urgent it is. Texts are empty where the document says nothing."""

    request_type: str
    priority: int
    requestor: str
    requestor_dn: str
    group: str
    prep_id: str
    team: str


@dataclass(frozen=True, slots=True)
class DroppedModules:
    """Output modules whose files are not merged. ``ignored`` ones may not be read by a later step either."""

    field: str  # for messages
    labels: tuple[str, ...]
    ignored: bool


@dataclass(frozen=True, slots=True)
class StepDraft:
    """One step without what only ConfigCache knows, and the names its outputs get. ``prefix`` (``Step2.``) is for messages."""

    prefix: str
    spec: StepSpec
    primary_dataset: str
    acquisition_era: str
    processing_string: str
    processing_version: int
    dropped: tuple[DroppedModules, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do and how it is cut: exactly one of ``generation`` and ``input`` is set."""

    splitting: SplittingSpec
    generation: GenerationSpec | None
    input: InputSpec | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A request, typed and checked as far as the document alone allows; :func:`complete` adds what ConfigCache knows.

    ``spec`` lacks its outputs, and its steps their output modules and PSet hashes.
    """

    spec: WorkflowSpec
    identity: Identity
    steps: tuple[StepDraft, ...]
    dropped: tuple[DroppedModules, ...]  # named at the top, for all steps
    merged_lfn_base: str
    unmerged_lfn_base: str
    declared_outputs: tuple[str, ...]
    config_url: str
    config_database: str
