"""A test of many cases runs each of them and lists all that fail."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from tests.support.cases import in_one_test


def test_every_case_that_fails_is_listed_whatever_it_fails_with() -> None:
    ran = []

    @in_one_test("number, word", [(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    def check(number: int, word: str) -> None:
        ran.append(word)
        assert number != 1
        if number == 2:
            raise ValueError("two")
        if number == 4:
            pytest.fail("four")

    with pytest.raises(AssertionError, match=r"(?s)3 of 4 cases failed.*\(1, 'a'\).*ValueError: two.*Failed: four"):
        check()
    assert ran == ["a", "b", "c", "d"]


def test_without_a_case_it_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        in_one_test("number", [])(lambda number: None)()


@pytest.mark.django_db
@in_one_test("name", ["anna", "anna"], rows=True)
def test_no_case_sees_the_rows_of_another(name: str, django_user_model: type[User]) -> None:
    assert not User.objects.exists()
    django_user_model.objects.create_user(name)
