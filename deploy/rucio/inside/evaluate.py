"""Rucio's judge-evaluator for the blocks named: their rules keep what is in them now, nothing else.

The daemon itself takes a hundred names at a time, of whatever was attached or detached first.
"""

from __future__ import annotations

import sys

from rucio.core.rule import delete_updated_did, get_updated_dids, re_evaluate_did

if __name__ == "__main__":
    names = frozenset(sys.argv[1:])
    for did in get_updated_dids(total_workers=1, worker_number=0, limit=100_000):
        if did.name in names:
            re_evaluate_did(scope=did.scope, name=did.name, rule_evaluation_action=did.rule_evaluation_action)
            delete_updated_did(id_=did.id)
