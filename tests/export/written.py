"""Definitions that were written, imported again from their files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def imported(path: Path) -> Any:
    """The module in a file of source."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
