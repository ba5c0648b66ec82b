"""Any ``torch.nn.Module``: what it holds, found out by evidence, and cleared by it.

From the bottom: `bytecode` and `tensors` import none of the rooms, then `holdings`, `stand_in`, `evidence`; the modules
here (`clearing`, `inventory`, `leaks`, ...) are what the verbs call. Imports point down this list.
"""
