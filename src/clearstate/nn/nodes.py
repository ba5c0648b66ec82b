"""nngraph."""

from typing import Any


def as_node(module: Any, inputs: Any) -> Any:
    return None
