"""Rows of outputs_app: output datasets, blocks, files, and the effects still owed to outside services."""

from outputs_app.models.block import BlockStatus, BlockWorkUnit, DatasetState, OutputDataset, ProcessingBlock
from outputs_app.models.effect import OPEN_EFFECT, REPORTS, Effect, EffectKind, EffectState
from outputs_app.models.output_file import OutputFile, Validity
from outputs_app.models.ownership import DatasetOwner, OwnedDataset

__all__ = [
    "OPEN_EFFECT",
    "REPORTS",
    "BlockStatus",
    "BlockWorkUnit",
    "DatasetOwner",
    "DatasetState",
    "Effect",
    "EffectKind",
    "EffectState",
    "OutputDataset",
    "OutputFile",
    "OwnedDataset",
    "ProcessingBlock",
    "Validity",
]
