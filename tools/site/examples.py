"""For mkdocstrings: what docstrings here are written in, as Markdown: doctests in fences, names in links.

Griffe, which reads the source for mkdocstrings, knows examples only under a heading; here they stand in the text.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *\n)(?=\1).*)*(?:\n+\1>>> .*(?:\n(?! *\n)(?=\1).*)*)*", re.MULTILINE)
"""Lines from a ``>>>`` to the next that is empty, and those of examples that follow at once."""

LITERAL = re.compile(r"::(?=\n\n +\S)")
"""What announces a block of code; in Markdown a colon does."""


def markdown(text: str) -> str:
    """A docstring's text with its examples fenced.

    >>> print(markdown("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nIt is quick."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    It is quick.
    """
    return EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", LITERAL.sub(":", text))


class Examples(griffe.Extension):
    """Fences the examples of all docstrings that are read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
