"""Rules for the classes of other Torch7 packages, a file for each file of `clearstate.nn.packs`.

One is imported once a net has a class of that file.
"""
