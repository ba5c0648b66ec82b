"""What the values of a checkpoint are for: each has a role, by which it is inspected, cleared, compared, cast.

Where the model is says `layout`; copies of it have a room of their own, `copies`.
"""
