"""Where files come from and go to, how many are worked on at a time, and how far the work is.

What is in the files is none of its business: that is `formats`.
"""
