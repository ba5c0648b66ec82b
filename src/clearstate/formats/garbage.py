"""Building a large graph with Python's cycle collector at rest: nothing made is garbage before the work is done."""

from __future__ import annotations

import gc


class uncollected:
    """No garbage collection inside the block; each pass over what is being built would cost as much as building it.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """

    __slots__ = ("enabled",)

    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            gc.enable()
