"""The way out: Torch7 nets as stock PyTorch, as Python source with weights beside it, and as ONNX.

    stock = cs.to_stock(cs.load("net.t7"))
    cs.write_definition(net, "net.py")        # and net.safetensors
    cs.to_onnx(net, "net.onnx", sample)

A net becomes a program (`program`) of stock layers and statements, by rules of one function a class (`rules`); its
source (`source`) makes the live net, so that both are the same. Each layer is compared with Torch7's (`builder`).
"""

from .covered import Coverage, coverage
from .definition import to_stock, write_definition
from .onnx import to_onnx
from .rules.table import Unmapped, rule
from .state import write_state

__all__ = ["Coverage", "Unmapped", "coverage", "rule", "to_onnx", "to_stock", "write_definition", "write_state"]
