"""CMS names: what is no dataset, block or LFN is refused, and RSEs are named after sites. Rucio's generic schema would take any
name but refuse ``#`` (block names) and lower case in RSE names (``T1_US_FNAL_Disk``).

The server looks up ``SCHEMAS``; the module attributes beside it are what other policy packages offer too.
"""

from rucio.common.schema import generic

NAME_LENGTH = 500
# A dataset, with "#" and a label a block, or an LFN. "$" would also let a newline end a name.
_DATASET = r"/[A-Za-z0-9_-]{1,99}/[A-Za-z0-9._-]{1,199}/[A-Z0-9-]{1,99}(#[A-Za-z0-9._-]{1,100})?"
_LFN = r"/store(/[A-Za-z0-9._+=-]+)+"
NAME = {"type": "string", "maxLength": NAME_LENGTH, "pattern": rf"^({_DATASET}|{_LFN})\Z"}
RSE = {"type": "string", "pattern": r"^T[0-3]_[A-Z]{2}(_[A-Za-z0-9]+)+\Z"}

# The generic attachment repeats the upper-case pattern for the RSE: attach_dids(..., rse="T2_US_Purdue") would be refused.
_PROPERTIES = {**generic.ATTACHMENT["properties"], "rse": {**RSE, "type": ["string", "null"]}}
ATTACHMENT = {**generic.ATTACHMENT, "properties": _PROPERTIES}

SCHEMAS = {**generic.SCHEMAS, "name": NAME, "rse": RSE, "attachment": ATTACHMENT}

# In a URL a CMS name follows its scope with both slashes: /cms//store/...; a front-end that merges slashes is not here.
SCOPE_NAME_REGEXP = "/([^/]*)/(.*)"
