"""Whether registered blocks are what they should be, with the evidence of it (ADR 0019)."""

from outputs_app.checks.validation.rules import FileFinding
from outputs_app.checks.validation.tending import ValidationProgress, events_in_catalogue, validation_again, validation_tend
