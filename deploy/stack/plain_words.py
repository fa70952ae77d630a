"""Words that this project does not use, and every place where one still stands in code, templates and docs.

python -m deploy.stack.plain_words      lists the places; ends with 1 where there are some
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: word -> what to say instead
PLAIN = {
    "told": "reported, logged, recorded",
    "nobody": "no user, no process, nothing",
    "somebody": "a user, another process",
    "whoever": "the user who, the process that",
    "is none": "does not exist, is not one",
    "acts not": "does nothing",
    "nudge": "notification",
    "brake": "throttle",
    "wish": "request, order",
    "on paper": "offline",
    "tones": "colours",
    "noun": "resource",
}
_EACH = "|".join(f"[{word[0].upper()}{word[0]}]{word[1:]}" for word in PLAIN)
#: Not one that stands alone in quotes: a stored value or a field of JSON.
_WORDS = re.compile(rf"(?<![a-z])(?<![Tt]here (?=is none))(?!(?<=[\"'])(?:{_EACH})[\"'])({_EACH})(?![a-z])")
_ROOT = Path(__file__).resolve().parents[2]
_PLACES = ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app", "deploy", "templates", "docs")
_SUFFIXES = frozenset({".py", ".html", ".js", ".md", ".yml", ".txt"})


def places() -> Iterator[tuple[str, int, str]]:
    """File, line and word of each; of identifiers too, not of migrations, which stay as they were applied."""
    paths = (path for place in _PLACES for path in sorted((_ROOT / place).rglob("*")) if path.suffix in _SUFFIXES)
    for path in paths:
        if "migrations" not in path.parts and path != Path(__file__):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                yield from ((str(path.relative_to(_ROOT)), number, word) for word in _WORDS.findall(line))


def main() -> int:
    """1 where there is such a word."""
    found = list(places())
    for file, number, word in found:
        print(f"{file}:{number}: {word!r}: {PLAIN[word.lower()]}")
    print(f"{len(found)} places")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
