"""A container whose file has no table of modules: it is read, printed and written back, but Torch7 could not run it."""

from __future__ import annotations

from typing import Any


class Lacking:
    """Stands in the place of the container's ``update_output`` until it has modules."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Any:
        if not self.module.children_in_order():
            raise ValueError("the module from the file lacks modules")
        del self.module.__dict__["update_output"]
        return self.module.update_output(*inputs)


def lacks_modules(module: Any) -> bool:
    """Whether a module is a container from a file that has no table of modules, and still has none."""
    return isinstance(module.__dict__.get("update_output"), Lacking) and not module.children_in_order()
