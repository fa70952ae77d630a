"""``python -m deploy.simulators.worker install``: launchers of the simulated programs."""

import sys

from .install import main

sys.exit(main())
