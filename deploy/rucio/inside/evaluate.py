"""Rucio's judge-evaluator, once over all that was attached or detached: rules keep what is in their blocks now, nothing else."""

from __future__ import annotations

from rucio.daemons.judge.evaluator import run

if __name__ == "__main__":
    run(once=True)
