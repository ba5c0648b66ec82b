"""What hangs on the modules of a model, and where: tensors in any value, hooks, patched methods, objects of training.

It imports `bytecode` and `tensors`. Whether what hangs there may go is judged in `clearstate.live.evidence`.
"""
