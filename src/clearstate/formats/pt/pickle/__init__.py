"""Pickles without running them: read into plain values and stubs, and written back as the same calls.

The files that a pickle is in are read in `container`; what the values are for is said in `meaning`.
"""
