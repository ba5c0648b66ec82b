"""The documentation's table of what is recognised is what the program does."""

from __future__ import annotations

import pytest

from .recognised import PAGE, updated


@pytest.mark.filterwarnings("ignore")
def test_the_table_says_what_is_recognised_in_the_checkpoints_of_each_program() -> None:
    page = PAGE.read_text("utf-8")
    assert updated(page) == page, "run python -m tests.pt.recognised"
