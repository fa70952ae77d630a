#!/usr/bin/env python
"""Django's command line for WMS2."""

import os
import select
import sys

from wms2.runtime.offline import STAND_INS, is_offline


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wms2.settings")
    if is_offline(sys.argv):
        for name, value in STAND_INS.items():
            os.environ.setdefault(name, value)
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        sys.exit(1)


def _nobody_reads() -> bool:
    """Whether it was the output that broke, as in ``| head``, and no connection of the command's own."""
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


if __name__ == "__main__":
    main()
