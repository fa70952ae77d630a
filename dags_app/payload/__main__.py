"""``python -m dags_app.payload <command>``: the payload's command line from the source tree."""

import sys

from .cli import main

sys.exit(main())
