"""Programs that write parts of ``docs/`` from the code."""
