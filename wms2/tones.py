"""How a status looks: one tone per value, the same in the admin, on the pages and in Grafana's legend.

Values of all enums of statuses and states stand here together: where two enums share a word, it means the same.
The colours are in ``wms2/static/wms2/tones.css``. A test has every value of every enum here.
"""

from __future__ import annotations

#: Nothing happens and nothing needs to.
IDLE = "idle"
#: Under way, all by itself.
MOVING = "moving"
#: As it should be.
GOOD = "good"
#: Waits, or not as it should be, without a person.
WAITING = "waiting"
#: A person is needed.
BAD = "bad"
#: Over.
ENDED = "ended"

TONES: dict[str, str] = {
    # requests and workflows
    "new": IDLE,
    "submitted": MOVING,
    "queued": WAITING,
    "planning": MOVING,
    "active": MOVING,
    "partial": WAITING,
    "stopping": WAITING,
    "resubmitting": MOVING,
    "held": BAD,
    "validating_outputs": MOVING,
    "waiting_integrity": BAD,
    "validated_outputs": MOVING,
    "removing_files": MOVING,
    "completed": GOOD,
    "archived": GOOD,
    "failed": BAD,
    "aborted": ENDED,
    "cleaning": WAITING,
    "cleaned": ENDED,
    # DAGs
    "ready": MOVING,
    "running": MOVING,
    "halted": WAITING,
    "stopped": ENDED,
    "removed": ENDED,
    # work units
    "planned": IDLE,
    "done_unaccounted": BAD,
    "done": GOOD,
    "abandoned": ENDED,
    # blocks and files
    "open": MOVING,
    "complete": MOVING,
    "invalidated": ENDED,
    "valid": GOOD,
    "invalid": BAD,
    # effects
    "pending": WAITING,
    "claimed": MOVING,
    "refused": BAD,
    "dead": BAD,
    # sites and schedds
    "discovered": IDLE,
    "enabled": GOOD,
    "draining": WAITING,
    "disabled": ENDED,
    "maintenance": WAITING,
}


def tone(value: str) -> str:
    """The tone of a status; an unknown one is shown plainly."""
    return TONES.get(value, IDLE)
