"""How modules are called: forward and backward, the tape, ownership of outputs, gradients of their own, sharing.

The layers themselves are in `layers`, `criterions` and `containers`, their files in `t7`.
"""
