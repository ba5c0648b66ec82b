"""Modules that hold modules: sequences, tables, decorators, and nets that are graphs.

Layers that are made of others are in `clearstate.nn.layers`, which stand above.
"""
