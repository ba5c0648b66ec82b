"""Modules that leave the numbers as they are."""

from __future__ import annotations

from typing import Any

from .module import Module


class Identity(Module):
    """Gives what it gets, tensor or table. Follows Torch7's ``nn/Identity.lua``."""

    def update_output(self, input: Any) -> Any:
        return input
