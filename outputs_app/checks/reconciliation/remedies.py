"""What is proposed for each kind of difference, and which registrations are made again when an operator has it repaired.

All of them may run twice, and none removes anything outside. Nothing is repaired whose cause WMS2 cannot know: what a person
invalidated, a copy that Rucio knows is bad, a rule that only a person at the site can help.
"""

from __future__ import annotations

from typing import NamedTuple

from outputs_app.models import DriftKind, EffectKind

K, E = DriftKind, EffectKind


class Remedy(NamedTuple):
    """``todo``: for an operator; ``again``: what a repair makes again, in the order that the effects have among themselves."""

    todo: str
    again: tuple[EffectKind, ...] = ()


_ASK = "Ask who changed it in DBS, and why; accept it if that is meant to be so."
_WHOSE = "Find out whose it is; nothing of WMS2 wrote it."
_BY_HAND = "WMS2 does not change a registered block. Have DBS's people look; then accept it, or take the outputs back."

REMEDIES: dict[DriftKind, Remedy] = {
    K.DATASET_TYPE: Remedy("Have it made VALID where it is PRODUCTION; any other type is a person's.", (E.DBS_VALID,)),
    K.DBS_BLOCK_MISSING: Remedy("Have it registered again.", (E.DBS_BLOCK,)),
    K.DBS_BLOCK_EXTRA: Remedy(_WHOSE),
    K.DBS_BLOCK_OPEN: Remedy("Have it closed; with other contents that is refused.", (E.DBS_BLOCK,)),
    K.DBS_BLOCK_COUNTS: Remedy(_BY_HAND),
    K.DBS_FILE_MISSING: Remedy(_BY_HAND),
    K.DBS_FILE_EXTRA: Remedy(_WHOSE),
    K.DBS_FILE_INVALID: Remedy(_ASK),
    K.DBS_FILE_DIFFERS: Remedy(f"One that was taken back and is valid: have it taken back again. Any other: {_BY_HAND}"),
    K.RUCIO_BLOCK_MISSING: Remedy(
        "Have it made again, with its replicas and rules. Make sure first that its files are there.",
        (E.RUCIO_BLOCK, E.RUCIO_FILES, E.RUCIO_PROTECT, E.RUCIO_BLOCK_CLOSE, E.RUCIO_TAPE, E.RUCIO_SOURCE_BLOCK),
    ),
    K.RUCIO_BLOCK_OPEN: Remedy("Have it closed.", (E.RUCIO_BLOCK_CLOSE,)),
    K.RUCIO_FILE_MISSING: Remedy("Have it attached again; a closed block takes none.", (E.RUCIO_FILES,)),
    K.RUCIO_FILE_EXTRA: Remedy(_WHOSE),
    K.RUCIO_FILE_DIFFERS: Remedy("See which is right at the site; accept it, or take the outputs back."),
    K.REPLICA_MISSING: Remedy(
        "See whether the file is at the site. If it is, have its replica registered again; if not, it is lost.", (E.RUCIO_FILES,)
    ),
    K.REPLICA_UNAVAILABLE: Remedy("Ask the site; Rucio says the copy there cannot be read."),
    K.RULE_GONE: Remedy("Have the rule made again.", (E.RUCIO_PROTECT, E.RUCIO_SOURCE_BLOCK, E.RUCIO_TAPE, E.RUCIO_DISK)),
    K.RULE_ELSEWHERE: Remedy("Find out who changed the rule; accept it, or have its owner delete it."),
    K.RULE_TROUBLE: Remedy(
        "STUCK: see its error, the site or the transfer system must be helped. SUSPENDED: who suspended it releases it."
        " WAITING_APPROVAL: ask the managers of the RSE."
    ),
    K.RULE_UNKNOWN: Remedy(
        "An answer was lost, or a row. If the row has no rule, have it protected again: the rule is found and recorded. Where the"
        " outputs were taken back, have their rules deleted again. Else accept it; WMS2 deletes no rule that it does not know.",
        (E.RUCIO_PROTECT, E.RUCIO_TAPE, E.RUCIO_DISK),
    ),
}  # fmt: skip
#: Kinds about a single file: what is made again is that of its work unit.
OF_A_FILE = (K.RUCIO_FILE_MISSING, K.REPLICA_MISSING, K.RULE_GONE, K.RULE_UNKNOWN)
