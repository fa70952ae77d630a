"""What every admin page of WMS2 shares. Rows are looked at, not edited; *operations* change them, through services.

Owns: read-only pages, lists that do not count big tables, how values are shown, operations with their page of confirmation.
Does not own: what an operation does or whom it concerns; each app declares its own (``wms2.actions``).
"""

from wms2.admin import people, rows
from wms2.admin.readonly import BY_REQUEST, OF_REQUEST, ReadOnlyAdmin, rows_admin
from wms2.admin.shown import badge_column, link_column, said_column, since_column
