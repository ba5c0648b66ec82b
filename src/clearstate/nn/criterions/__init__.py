"""Torch7's losses: of elements, of classes, with a margin, and those that stand in a net as modules.

What a criterion is in general is said in `clearstate.nn.protocol`.
"""
