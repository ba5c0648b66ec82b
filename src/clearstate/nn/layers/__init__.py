"""Layers of Torch7's nn that map a tensor or a table to another, one file a family.

Those that slide a window are in `windows`; those that hold other modules in `clearstate.nn.containers`.
"""
