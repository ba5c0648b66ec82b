"""Damaged files through every verb, a hundred thousand at a time: each is answered, or refused in a sentence.

`seeds` are whole files of every format, `places` says where their numbers are, `mutants` changes some of them, `verbs`
does to a mutant what people do to files and says what is a fault, `guard` has a second opinion on what verifies, and
`run` does so many times in processes with limits: ``python -m tests.fuzz --help``.
"""
