"""Words that are not used: every place is named, files that are excused are let through."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.stack import plain_words


def test_every_place_is_named_unless_its_file_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/new.html").write_text("It is told.\nA teller, `is None`.\nThere is none, it is none, nobody acts not.\n")
    (tmp_path / "docs/old.html").write_text("self._told = 1\n")
    excused = tmp_path / "excused"
    excused.write_text("docs/old.html\ndocs/clean.html\n")
    monkeypatch.setattr(plain_words, "_ROOT", tmp_path)
    monkeypatch.setattr(plain_words, "_EXCUSED", excused)
    assert plain_words.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("': ")[0] for line in lines[:4]] == [
        "docs/new.html:1: 'told", "docs/new.html:3: 'is none", "docs/new.html:3: 'nobody", "docs/new.html:3: 'acts not",
    ]  # fmt: skip
    assert lines[4:] == ["4 places, and 1 in 1 excused files", "no longer to be excused: docs/clean.html"]
    assert plain_words.main(["--excuse"]) == plain_words.main([]) == 0
    assert excused.read_text() == "docs/new.html\ndocs/old.html\n"
