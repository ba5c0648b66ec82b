"""The catalog's entries, a file for each Torch7 package; `clearstate.formats.t7.classes` says what an entry is."""
