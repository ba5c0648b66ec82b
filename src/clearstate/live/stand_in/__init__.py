"""Another model that shares the parameters of a model, to be cleared, run or saved in its place.

It imports `holdings` and what is below. When it is run, and what a run says, is in `clearstate.live.evidence`.
"""
