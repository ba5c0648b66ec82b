"""The kind of Torch7's tensors that has the numbers of each dtype: ``torch.float32`` is ``Float``."""

from __future__ import annotations

import torch

CLASSES_OF_DTYPE = {
    torch.uint8: "Byte",
    torch.bool: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
}
