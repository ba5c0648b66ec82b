"""Layers that slide a window over time, images or volumes: convolutions, poolings, and what undoes or feeds them.

How sizes, steps and borders are named and printed is said once, in `window`.
"""
