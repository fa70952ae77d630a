"""cmsRun's exceptions with their codes. A process can only hand 8 bits of a code to its parent; the report has it whole."""

from __future__ import annotations

from dataclasses import dataclass

CONFIG_NOT_FOUND = 7001
CONFIG_UNREADABLE = 7002
CONFIGURATION = 8009
FILE_OPEN = 8020
FILE_READ = 8021
WRONG_GUID = 8034
GENERATION_FAILED = 8501


@dataclass(eq=False)
class CmsException(Exception):
    """``cms::Exception``: ``code`` as in CMS's list, ``category`` its name, ``message`` the text."""

    code: int
    category: str
    message: str


def misconfigured(text: str) -> CmsException:
    """The configuration asks for what cannot be."""
    return CmsException(CONFIGURATION, "Configuration", text)
