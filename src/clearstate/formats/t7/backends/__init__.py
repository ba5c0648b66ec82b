"""Layers of one backend as those of another: pairs of classes (nn, cudnn, inn), devices and number types.

Which classes there are, and what their fields are for, is in `meaning`.
"""
