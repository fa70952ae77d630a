"""Writes ``docs/configuration.md`` from ``wms2.conf`` and ``configuration.md`` beside this.

python -m deploy.docs.configuration
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from deploy.docs import written
from wms2.conf import GROUPS, Conf, Limits

TARGET = written.DOCS / "configuration.md"
_TEMPLATE = Path(__file__).with_suffix(".md")


def page() -> str:
    """The whole page. Raises ValueError: a setting has no description."""
    template = _TEMPLATE.read_text().replace("{settings}\n", "\n".join(_tables()))
    return template.replace("{limits}", "\n".join(_limits()))


def _limits() -> Iterator[str]:
    for group, names in GROUPS.items():
        yield from (_row(f"{group}: `{name}`", Limits.model_fields[name]) for name in names)


def _row(name: str, field: FieldInfo) -> str:
    if not field.description:
        raise ValueError(f"wms2/conf: {name} has no description")
    return f"| {name} | {default_of(field)} | {' '.join(field.description.split()).removesuffix('.')}. |"


def _tables() -> Iterator[str]:
    """In the order of the bases of ``Conf``, under the headings of their comments."""
    sources = "".join(inspect.getsource(base) for base in reversed(Conf.__mro__) if base.__module__.startswith("wms2.conf"))
    for heading, name in re.findall(r"^    (?:# --- (.+)|(\w+): .+)$", sources, re.MULTILINE):
        field = Conf.model_fields.get(name)
        if heading:
            yield f"\n## {heading}\n\n| variable | default | meaning |\n|---|---|---|"
        elif field is not None:
            yield _row(f"`WMS2_{name.upper()}`", field)
    yield "\n"


def default_of(field: FieldInfo) -> str:
    """The default of a field as it would be written in the environment."""
    if field.is_required():
        return "required"
    value = field.default
    if value == Limits():
        return "{}"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) or "empty"


if __name__ == "__main__":
    written.run(TARGET, page)
