#!/usr/bin/env python
"""Django's command line for WMS2."""

import os
import sys

from wms2.paper import STAND_INS, is_on_paper


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")
    if is_on_paper(sys.argv):
        for name, value in STAND_INS.items():
            os.environ.setdefault(name, value)
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
