"""What a tensor is made of, which memory it has, and whether two are equal: dense, sparse, quantized and wrapping ones.

Nothing of modules is known here; what modules hold is found in `clearstate.live.holdings`.
"""
