"""Copies of the model in a checkpoint: found by names and shapes wherever they lie, and chosen when asked for.

Weights that an optimizer would evaluate belong here, too.
"""
