"""Command line of the stack: ``deploy/bootstrap COMMAND``."""

from __future__ import annotations

import sys

from deploy.stack.commands import main

sys.exit(main(sys.argv[1:]))
