"""cmsRun's exceptions with their codes. A process can only hand 8 bits of a code to its parent; the report has it whole."""

from __future__ import annotations

CONFIG_NOT_FOUND = 7001
CONFIG_UNREADABLE = 7002
OTHER_EXCEPTION = 8001
CONFIGURATION = 8009
FILE_OPEN = 8020
FILE_READ = 8021


class CmsException(Exception):
    """``cms::Exception``: ``code`` as in CMS's list, ``category`` its name, ``message`` the text."""

    def __init__(self, code: int, category: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.category = category
        self.message = message
