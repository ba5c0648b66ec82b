"""What classes of modules declare, for calls and for files, and what is said where something else came.

It imports nothing of the other rooms of nn: how modules are called and go back is in `protocol`.
"""
