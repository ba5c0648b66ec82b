"""Any ``torch.nn.Module``: what it holds, found out by evidence, and cleared by it."""
