"""What a password may not be made of: names that are guessed first here. Django's validators judge the rest."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError

#: Words of this field and of this software.
WORDS = ("wms2", "wmagent", "wmcore", "reqmgr", "condor", "dagman", "rucio", "cern", "cms", "operator", "password")


class ContextWordsValidator:
    """A password that is one of these words with some letters and digits around it, however long."""

    def validate(self, password: str, user: Any = None) -> None:
        """Raises ValidationError: fewer than ten characters are left without the words."""
        left = password.casefold()
        for word in WORDS:
            left = left.replace(word, "")
        if left != password.casefold() and len(left) < 10:
            raise ValidationError(f"Besides {', '.join(WORDS)} it has fewer than ten characters.", code="password_of_known_words")

    def get_help_text(self) -> str:
        """What forms say of it."""
        return f"Not made of these words alone: {', '.join(WORDS)}."
