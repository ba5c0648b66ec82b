"""What the methods of a class read and write, read off their bytecode: nothing is run.

It knows classes and names alone, and imports none of the other rooms. What follows from it for an attribute of a
module is judged in `clearstate.live.evidence`.
"""
