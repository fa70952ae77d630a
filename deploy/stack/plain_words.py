"""Words that this project does not use, and every place where one still stands in code, templates and docs.

    python -m deploy.stack.plain_words            lists the places; ends with 1 where there are some
    python -m deploy.stack.plain_words --excuse   lists the files that have some in ``plain_words_excused.txt``

The list of excused files only shrinks; an empty one turns the check on for everything.
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
}
_WORDS = re.compile(rf"(?<![a-z])(?<![Tt]here (?=is none))({'|'.join(PLAIN)})(?![a-z])")
_ROOT = Path(__file__).resolve().parents[2]
_EXCUSED = Path(__file__).with_name("plain_words_excused.txt")
_PLACES = ("wms2", "requests_app", "dags_app", "outputs_app", "sites_app", "deploy", "templates", "docs")
_SUFFIXES = frozenset({".py", ".html", ".js", ".md", ".yml", ".txt"})
_OWN = frozenset({Path(__file__), _EXCUSED})


def places() -> Iterator[tuple[str, int, str]]:
    """File, line and word of each; of identifiers too, not of migrations, which stay as they were applied."""
    paths = (path for place in _PLACES for path in sorted((_ROOT / place).rglob("*")) if path.suffix in _SUFFIXES)
    for path in paths:
        if "migrations" not in path.parts and path not in _OWN:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                yield from ((str(path.relative_to(_ROOT)), number, word) for word in _WORDS.findall(line))


def main(arguments: list[str]) -> int:
    """1 where a file that is not excused has such a word."""
    found = list(places())
    if "--excuse" in arguments:
        _EXCUSED.write_text("".join(f"{file}\n" for file in sorted({file for file, _, _ in found})))
        return 0
    excused = set(_EXCUSED.read_text().split())
    wrong = [place for place in found if place[0] not in excused]
    for file, number, word in wrong:
        print(f"{file}:{number}: {word!r}: {PLAIN[word]}")
    still = excused & {file for file, _, _ in found}
    print(f"{len(wrong)} places, and {len(found) - len(wrong)} in {len(still)} excused files")
    for file in sorted(excused - still):
        print(f"no longer to be excused: {file}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
