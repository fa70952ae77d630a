"""Operator operations and intake, as functions ``<row>_<operation>``. They record intent; the life cycle does all outside work.

Each raises ``InvalidTransition`` where its ``*_refused`` says why it does not apply; what else it raises, it says itself.
"""

from dags_app.services.stop import StopMode
from requests_app.services.cleaning import request_clean
from requests_app.services.decisions import (
    block_validate,
    request_abort,
    request_compare,
    request_complete,
    request_hold,
    request_keep,
    request_note,
    request_pin,
    request_set_adaptive,
    request_set_error_limits,
    request_set_pools,
    request_set_priority,
    request_set_retries,
    request_set_sites,
    request_set_steps,
    request_submit,
    request_throttle,
    request_validate,
)
from requests_app.services.derive import request_derive, request_flush
from requests_app.services.groups import group_dissolve, request_depend, request_group
from requests_app.services.input_files import input_files_restore
from requests_app.services.intake import Received, request_check, request_fetch, request_import
from requests_app.services.invalidation import request_invalidate, request_invalidate_files
from requests_app.services.moving import request_move
from requests_app.services.release import request_release
from requests_app.services.restart import request_restart
from requests_app.services.stopping import request_fail, request_force, request_stop
