"""Make the demo's administrator, or give it a new password: ``python -m deploy.demo.login NAME``.

The password comes in WMS2_ADMIN_PASSWORD, so that it is on no command line.
"""

from __future__ import annotations

import os
import sys

import django


def main(name: str) -> int:
    django.setup()
    from django.contrib.auth import get_user_model

    user, _ = get_user_model().objects.get_or_create(username=name, defaults={"is_staff": True, "is_superuser": True})
    user.set_password(os.environ["WMS2_ADMIN_PASSWORD"])
    user.save()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
