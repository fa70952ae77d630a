"""Words that are not used: every place is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.stack import plain_words


def test_every_place_is_named_and_stored_values_are_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs/new.html"
    page.write_text('It is told.\nA teller, `is None`, row["told"].\nIt is none, Nobody acts not.\nself._told = 1\n')
    monkeypatch.setattr(plain_words, "_ROOT", tmp_path)
    assert plain_words.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("': ")[0] for line in lines] == [
        "docs/new.html:1: 'told", "docs/new.html:3: 'is none", "docs/new.html:3: 'Nobody", "docs/new.html:3: 'acts not",
        "docs/new.html:4: 'told", "",
    ]  # fmt: skip
    assert lines[-1] == "5 places"
    page.write_text("Nothing of the kind.\n")
    assert plain_words.main() == 0
