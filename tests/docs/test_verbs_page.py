"""``docs/verbs.md`` is what the declarations say."""

from __future__ import annotations

from deploy.docs import verbs
from wms2.verbs import nouns


def test_the_page_is_what_the_program_writes() -> None:
    assert verbs.TARGET.read_text() == verbs.page(), "run python -m deploy.docs.verbs"


def test_every_verb_says_what_it_does_and_what_its_fields_mean() -> None:
    for noun in nouns():
        for verb in noun.verbs:
            assert verb.does.endswith("."), (noun.name, verb.name)
            assert all(field.help or field.choices for field in verb.fields), (noun.name, verb.name)
