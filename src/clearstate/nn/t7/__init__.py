"""Live modules and the object graph of a ``.t7`` file, each made from the other: every field, under Torch7's name.

The bytes of files are read and written in `clearstate.formats.t7`.
"""
