"""Whose checkpoint it is, where the model is in it, and what its keys are for: the declarations of training programs.

What is done by them (what goes, what differs) is in `meaning`.
"""
