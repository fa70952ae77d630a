"""How a status looks: one colour per value, the same in the admin, on the pages and in Grafana's legend.

Values of all enums of statuses and states stand here together: where two enums share a word, it means the same.
The colours are in ``wms2/static/wms2/colours.css``. A test has every value of every enum here.
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

_VALUES = {
    IDLE: ["new", "planned", "discovered", "info"],
    MOVING: [
        *("submitted", "planning", "active", "resubmitting", "validating_outputs", "validated_outputs", "removing_files"),
        *("ready", "running", "open", "complete", "claimed", "completing", "recovering"),
    ],
    GOOD: ["completed", "archived", "done", "valid", "enabled", "repaired", "healthy"],
    WAITING: [
        *("queued", "partial", "stopping", "cleaning", "halted", "pending", "draining", "maintenance", "asked", "waiting"),
        "busy",
        "warning",
    ],
    BAD: [
        *("held", "waiting_integrity", "failed", "done_unaccounted", "invalid", "refused", "dead", "unsettled", "degraded"),
        "unreachable",
        "critical",
    ],
    ENDED: [
        *("aborted", "cleaned", "stopped", "removed", "abandoned", "invalidated", "disabled", "discarded", "given_up"),
        *("accepted", "gone", "ended"),
    ],
}
COLOURS: dict[str, str] = {value: colour for colour, values in _VALUES.items() for value in values}


def colour(value: str) -> str:
    """The colour of a status; an unknown one is shown plainly."""
    return COLOURS.get(value, IDLE)
