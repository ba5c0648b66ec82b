"""The catalog of Torch7 classes: which of a class's fields work leaves behind, and how a class of your own is added.

>>> from clearstate import catalog
>>> str(catalog.lookup("nn.Linear").roles["gradWeight"])
'gradient'
>>> catalog.register("my.Attention", transient="scores mask", parameter="query")

To say what the constructor leaves in a transient field, where emptying it is not enough:

>>> catalog.register("my.Cache", transient=catalog.tensor("seen", "torch.LongTensor") | catalog.value("steps", 0))
"""

from .formats.t7.meaning.classes import (
    UNDECLARED,
    ClassEntry,
    absent,
    clones,
    emptied,
    extend,
    holding,
    lookup,
    names,
    register,
    same,
    storage,
    table,
    tensor,
    tensors,
    value,
    where,
    zeros,
)

__all__ = [
    "UNDECLARED",
    "ClassEntry",
    "absent",
    "clones",
    "emptied",
    "extend",
    "holding",
    "lookup",
    "names",
    "register",
    "same",
    "storage",
    "table",
    "tensor",
    "tensors",
    "value",
    "where",
    "zeros",
]
