"""Rows of outputs_app: output datasets, blocks, files, and the effects still owed to outside services."""

from outputs_app.models.block import BlockStatus, BlockWorkUnit, DatasetState, OutputDataset, ProcessingBlock
from outputs_app.models.effect import AFTERWARDS, OPEN_EFFECT, SETTLED_EFFECT, Effect, EffectKind, EffectState
from outputs_app.models.output_file import OutputFile, Validity
from outputs_app.models.ownership import DatasetOwner, OwnedDataset
from outputs_app.models.placement import Placement

__all__ = [
    "AFTERWARDS",
    "OPEN_EFFECT",
    "SETTLED_EFFECT",
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
    "Placement",
    "ProcessingBlock",
    "Validity",
]
