"""What a baseline puts back: a module is as it was then, save its weights; never half of it."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn import Linear

import clearstate as cs


@pytest.mark.parametrize("wrong", [3, {}, cs.observe(Linear(2, 2))], ids=["int", "dict", "not entered"])
def test_what_is_no_baseline_is_refused_with_how_to_make_one(wrong: Any) -> None:
    model = Linear(2, 2)
    for call in (cs.clear_state, cs.inspect):
        with pytest.raises(
            TypeError, match=rf"baseline is what `with observe\(model\) as .* not {type(wrong).__name__}"
        ):
            call(model, baseline=wrong)
