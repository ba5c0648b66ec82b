"""Torch7 files between bytes and an object graph: every variant, binary and ascii, written back byte for byte.

What the objects mean is said in `meaning`.
"""
