"""Entry point of ``python -m deploy.simulators``."""

import sys

from deploy.simulators.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
