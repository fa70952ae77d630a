"""Rows of outputs_app: output datasets, blocks, files, and the effects still owed to outside services."""

from outputs_app.models.block import BlockStatus, BlockWorkUnit, DatasetState, OutputDataset, ProcessingBlock
from outputs_app.models.effect import OPEN_EFFECT, Effect, EffectKind, EffectState
from outputs_app.models.output_file import OutputFile, Validity

__all__ = [
    "OPEN_EFFECT",
    "BlockStatus",
    "BlockWorkUnit",
    "DatasetState",
    "Effect",
    "EffectKind",
    "EffectState",
    "OutputDataset",
    "OutputFile",
    "ProcessingBlock",
    "Validity",
]
