"""By which evidence an attribute is work or model (declared, computed, observed, proved), and what it was before work.

It imports all rooms below: `stand_in`, `holdings`, `tensors`, `bytecode`. Who clears, lists or measures asks it.
"""
