"""Numbers of bytes, and lists of names, in the words of a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many there are besides.

    >>> some(["a", "b", "c"], 2), some(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def size_text(count: int) -> str:
    """A number of bytes for people, in powers of 1000 as file managers count.

    >>> size_text(999), size_text(4_885_903), size_text(8_500_000_000)
    ('999 B', '4.9 MB', '8.5 GB')
    """
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}" if size >= 99.5 else f"{size:.1f} {unit}"
