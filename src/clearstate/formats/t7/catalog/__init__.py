"""The catalog's entries, a file for each Torch7 package; `meaning.classes` says what an entry is."""
