"""PyTorch's checkpoint files, read and written without torch and without running anything in them."""
