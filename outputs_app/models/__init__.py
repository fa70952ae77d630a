"""Rows of outputs_app: output datasets, blocks, files, effects still owed to outside services, and what differs there."""

from outputs_app.models.block import (
    RULED,
    BlockStatus,
    BlockWorkUnit,
    DatasetState,
    OutputDataset,
    OutputFile,
    ProcessingBlock,
    Validity,
)
from outputs_app.models.drift import OPEN_DRIFT, Comparison, Drift, DriftKind, DriftState
from outputs_app.models.effect import AFTERWARDS, OPEN_EFFECT, REPORTS, SETTLED_EFFECT, Effect, EffectKind, EffectState
from outputs_app.models.ownership import DatasetOwner, OwnedDataset
from outputs_app.models.placement import Placement
from outputs_app.models.validation import (
    OPEN_CASE,
    BlockValidation,
    CaseAction,
    CaseState,
    FindingKind,
    IntegrityCase,
    StorageCheck,
)
