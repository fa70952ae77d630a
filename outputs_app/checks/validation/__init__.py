"""Whether registered blocks are what they should be, with the evidence of it (ADR 0019)."""

from outputs_app.checks.validation.process import ValidationProgress, events_in_catalogue, validation_again, validation_process
from outputs_app.checks.validation.rules import FileFinding
