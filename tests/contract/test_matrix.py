"""The page of mutants and checks is up to date."""

from __future__ import annotations

from .matrix import PAGE, matrix


def test_the_page_is_what_the_gallery_says() -> None:
    assert PAGE.read_text("utf-8") == matrix(), "run: python -m tests.contract.matrix"
