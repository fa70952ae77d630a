"""Writes ``docs/configuration.md`` from ``wms2.conf`` and ``configuration.md`` beside this.

python -m deploy.docs.configuration [--check]
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from deploy.docs import written
from wms2.conf import Conf

TARGET = written.DOCS / "configuration.md"
_TEMPLATE = Path(__file__).with_suffix(".md")


def page(changeable: frozenset[str]) -> str:
    """The whole page.

    Args:
        changeable: names of settings that operators may change at run time.

    Raises:
        ValueError: a setting has no description.
    """
    return _TEMPLATE.read_text().replace("{settings}\n", "\n".join(_tables(changeable)))


def _tables(changeable: frozenset[str]) -> Iterator[str]:
    """In the order of the bases of ``Conf``, under the headings of their comments."""
    sources = "".join(inspect.getsource(base) for base in reversed(Conf.__mro__) if base.__module__.startswith("wms2.conf"))
    for heading, name in re.findall(r"^    (?:# --- (.+)|(\w+): .+)$", sources, re.MULTILINE):
        field = Conf.model_fields.get(name)
        if heading:
            yield f"\n## {heading}\n\n| variable | default | meaning |\n|---|---|---|"
        elif field is not None and not field.description:
            raise ValueError(f"wms2/conf: {name} has no description")
        elif field is not None:
            mark, text = " ⟳" if name in changeable else "", " ".join(str(field.description).split()).removesuffix(".")
            yield f"| `WMS2_{name.upper()}`{mark} | {default_of(field)} | {text}. |"
    yield "\n"


def default_of(field: FieldInfo) -> str:
    """The default of a field as it would be written in the environment."""
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) or "empty"


def _page() -> str:
    from requests_app.limits import CHANGEABLE  # models can only be imported after the set-up

    return page(CHANGEABLE)


if __name__ == "__main__":
    sys.exit(written.run(TARGET, _page, sys.argv[1:]))
