"""The report: one HTML page that shows where a model's bytes are. It works offline and asks the network for nothing.

>>> from clearstate.inventory import Entry, Inventory
>>> from clearstate.roles import Role
>>> weight = Entry("weight", "", "torch.FloatTensor", Role.PARAMETER, 24, "declared", "float32", (2, 3))
>>> page(Inventory("net.t7", "Torch7 file", 24, (weight,))).startswith("<!doctype html>")
True
"""

from __future__ import annotations

from .page import check, page, write

__all__ = ["check", "page", "write"]
