"""The files that checkpoints come in: zip, the stream before it, tar, shards, and what stands beside them.

Each opens into one `file.File`. The pickle inside is read in `pickle`.
"""
