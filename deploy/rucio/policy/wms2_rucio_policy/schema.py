"""CMS names. Rucio's generic schema refuses ``#`` (block names) and lower case in RSE names (``T1_US_FNAL_Disk``).

The server looks up ``SCHEMAS``; the module attributes beside it are what other policy packages offer too.
"""

from rucio.common.schema import generic

NAME_LENGTH = 500
NAME = {"type": "string", "maxLength": NAME_LENGTH, "pattern": r"^[/A-Za-z0-9][/A-Za-z0-9.\-_+#:=]*$"}
RSE = {"type": "string", "pattern": r"^[A-Z0-9]+([_-][A-Za-z0-9]+)*$"}

# The generic attachment repeats the upper-case pattern for the RSE: attach_dids(..., rse="T2_US_Purdue") would be refused.
_PROPERTIES = {**generic.ATTACHMENT["properties"], "rse": {**RSE, "type": ["string", "null"]}}
ATTACHMENT = {**generic.ATTACHMENT, "properties": _PROPERTIES}

SCHEMAS = {**generic.SCHEMAS, "name": NAME, "rse": RSE, "attachment": ATTACHMENT}

# In a URL a CMS name follows its scope with both slashes: /cms//store/...; a front-end that merges slashes is not here.
SCOPE_NAME_REGEXP = "/([^/]*)/(.*)"
