"""Every test begins with an empty cache of compiled graphs."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    torch._dynamo.reset()
