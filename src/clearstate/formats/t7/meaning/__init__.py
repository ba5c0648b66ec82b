"""What the objects of a Torch7 file are for: the catalog of classes, and what inspects, clears and compares by it.

The bytes of the format are read and written in `codec`.
"""
