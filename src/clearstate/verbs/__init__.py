"""What is done with a model: inspect, clear, verify, convert, save, load. One file a verb.

Each is a door: it finds the room for its argument (a file of a format, an object graph, a live module) and goes in. How
any of it is done is not said here, but in `formats`, `live`, `nn` and `export`.
"""
