"""Containers that give their input to several modules, or its parts to one each."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...formats import t7
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.dimensions import dimension_of, joined
from ..declarations.fields import index, plain
from ..protocol.stateful import Stateful
from ..protocol.tape import recording
from .sequential import Container, indented, lent


class Concat(Container):
    """Gives its input to each module and joins what they give along a dimension (from 0).

    Follows Torch7's ``nn/Concat.lua``.

    >>> import clearstate.nn as nn
    >>> net = Concat(1).add(nn.Linear(4, 3)).add(nn.Linear(4, 2))
    >>> net
    nn.Concat {
      input
        |`-> (1): nn.Linear(4 -> 3)
         `-> (2): nn.Linear(4 -> 2)
         ... -> output
    }
    >>> net(torch.ones(5, 4)).shape
    torch.Size([5, 5])
    """

    fields = index("dimension")
    dimension: int = 0

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def update_output(self, input: Any) -> Tensor:
        return self.join([module(lent(module, input)) for module in self])

    def join(self, outputs: list[Tensor]) -> Tensor:
        """Joins what the modules gave."""
        if not outputs:
            raise ValueError(f"{self.typename} has no modules")
        expect(outputs[0])
        return joined(outputs, dimension_of(outputs[0], self.dimension, None))


class DepthConcat(Concat):
    """Like `Concat`, for outputs that differ in other dimensions too: smaller ones are centred among zeros.

    Follows Torch7's ``nn/DepthConcat.lua``.

    >>> import clearstate.nn as nn
    >>> class Inner(nn.Module):
    ...     def update_output(self, input):
    ...         return input[:, 1:-1]
    >>> DepthConcat(0).add(nn.Identity()).add(Inner())(torch.ones(1, 4))
    tensor([[1., 1., 1., 1.],
            [0., 1., 1., 0.]])
    """

    def join(self, outputs: list[Tensor]) -> Tensor:
        if not outputs:
            raise ValueError(f"{self.typename} has no modules")
        expect(outputs[0])
        for output in outputs:
            expect(output, dims=(outputs[0].dim(),))
        along = dimension_of(outputs[0], self.dimension, None)
        sizes = [max(size) for size in zip(*(output.shape for output in outputs), strict=True)]
        return torch.cat([_centred(output, sizes, along) for output in outputs], along)


def _centred(tensor: Tensor, sizes: list[int], along: int) -> Tensor:
    """A tensor with zeros around it, to these sizes in all dimensions but one; the odd zero goes behind."""
    padding: list[int] = []
    for dimension in reversed(range(tensor.dim())):
        missing = 0 if dimension == along else sizes[dimension] - tensor.shape[dimension]
        padding += [missing // 2, missing - missing // 2]
    return F.pad(tensor, padding)


class Parallel(Container):
    """Gives each module one slice of its input along a dimension, and joins what they give along another one.

    Args:
        input_dimension: the first slice along it goes to the first module, and so on; from 0.
        output_dimension: a dimension of what the modules give, which have one less than the input; from 0.

    Follows Torch7's ``nn/Parallel.lua``.

    >>> import clearstate.nn as nn
    >>> Parallel(0, 0).add(nn.Linear(4, 3)).add(nn.Linear(4, 2))(torch.ones(2, 4)).shape
    torch.Size([5])
    """

    fields = index("inputDimension outputDimension")
    input_dimension: int = 0
    output_dimension: int = 0

    def __init__(self, input_dimension: int, output_dimension: int) -> None:
        super().__init__()
        self.input_dimension = input_dimension
        self.output_dimension = output_dimension

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        along = dimension_of(input, self.input_dimension, None)
        modules = self.children_list()
        if not 0 < input.shape[along] <= len(modules):
            raise ValueError(
                f"expected at most {len(modules)} slices along dimension {along}, one a module, got {describe(input)}"
            )
        outputs = [modules[i](lent(modules[i], input.select(along, i))) for i in range(input.shape[along])]
        expect(outputs[0])
        return joined(outputs, dimension_of(outputs[0], self.output_dimension, None))


class ConcatTable(Container):
    """Gives its input to each module; what they give is a table. Follows Torch7's ``nn/ConcatTable.lua``.

    >>> import clearstate.nn as nn
    >>> ConcatTable().add(nn.Identity()).add(nn.Tanh())(torch.zeros(2))
    [tensor([0., 0.]), tensor([0., 0.])]
    """

    traced_through = True

    def update_output(self, input: Any) -> list[Any]:
        return [module(lent(module, input)) for module in self]


class ParallelTable(Container):
    """Gives the first entry of a table to the first module, and so on; what they give is a table.

    Entries that there is no module for are left out. Follows Torch7's ``nn/ParallelTable.lua``.

    >>> import clearstate.nn as nn
    >>> ParallelTable().add(nn.Identity()).add(nn.Tanh())([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        modules = self.children_list()
        if isinstance(input, dict) or len(input) < len(modules):
            raise ValueError(f"expected a table of {len(modules)}, one entry a module, got {describe(input)}")
        return [module(lent(module, entry)) for module, entry in zip(modules, input, strict=False)]


class MapTable(Container):
    """Gives every entry of a table to the same module; what it gives is a table.

    In the protocol each entry has a clone of the module, which keeps what its work leaves. Clones are made as they
    are needed, and `clear_state` drops them.

    Args:
        module: what works on the entries.
        shared: the clones are one with the module in their parameters and buffers. If not, each is trained for
            itself; then clones are part of the model, are used in ``model(x)`` too, and stay.

    Follows Torch7's ``nn/MapTable.lua``.

    >>> import clearstate.nn as nn
    >>> net = MapTable(nn.Linear(4, 3))
    >>> [t.shape for t in net([torch.ones(4), torch.ones(2, 4)])], len(net)
    ([torch.Size([3]), torch.Size([2, 3])], 1)
    >>> _ = net.forward([torch.ones(4), torch.ones(2, 4)])
    >>> len(net), net[1].output.shape, net[0].weight is net[1].weight
    (2, torch.Size([2, 3]), True)
    >>> len(net.clear_state())
    1
    >>> net
    nn.MapTable {
      nn.Linear(4 -> 3)
    }
    """

    fields = plain("shared sharedparams module")
    shared: bool = True
    sharedparams: tuple[str, ...] | list[str] = ("weight", "bias", "gradWeight", "gradBias")

    def __init__(self, module: torch.nn.Module | None = None, shared: bool = True) -> None:
        super().__init__()
        self.shared = shared
        if module is not None:
            self.add(module)

    @property
    def module(self) -> torch.nn.Module | None:
        """The module itself, which the clones are made from; the first child."""
        return self._modules.get("0")

    def add(self, module: torch.nn.Module) -> MapTable:
        """Sets the module.

        Raises:
            ValueError: there is one.
        """
        if self.module is not None:
            raise ValueError(f"{self.typename} takes one module, and has {describe_module(self.module)}")
        return super().add(module)

    def resize(self, n: int) -> MapTable:
        """Makes as many clones as it takes to have ``n`` modules, or drops some."""
        return self.extend(n).renew(self.children_list()[: max(n, 1)])

    def extend(self, n: int) -> MapTable:
        """Makes clones until there are ``n`` modules."""
        module = self.module
        if module is None:
            raise ValueError(f"{self.typename} has no module")
        for i in range(len(self), n):
            self.add_module(str(i), self._cloned(module))
        return self

    def _cloned(self, module: torch.nn.Module) -> torch.nn.Module:
        state = (*module.parameters(), *module.buffers()) if self.shared else ()
        clone = copy.deepcopy(module, {id(tensor): tensor for tensor in state})
        return clone.clear_state() if isinstance(clone, Stateful) else clone

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        if isinstance(input, dict):
            raise TypeError(f"expected a table with the keys 1 to n, got one with {', '.join(map(repr, input))}")
        if self.shared and not recording():
            if self.module is None:
                raise ValueError(f"{self.typename} has no module")
            return [self.module(entry) for entry in input]
        modules = self.extend(len(input)).children_list()
        return [module(lent(module, entry)) for module, entry in zip(modules, input, strict=False)]

    def clear_own(self) -> None:
        super().clear_own()
        self._drop_clones()

    def _drop_clones(self) -> None:
        if self.shared:
            for clone in self.children_list()[1:]:
                if isinstance(clone, Stateful):
                    clone.clear_state()
            self.renew(self.children_list()[:1])

    def loaded(self) -> None:
        module = self._modules.pop("module", None)
        if module is not None and "0" not in self._modules:
            self.add_module("0", module)
        self._drop_clones()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module, without shared clones: they are the module again."""
        clones = [n for n in self._modules if n != "0"] if self.shared else []
        hidden = {name: self._modules.pop(name) for name in clones}
        try:
            return super().state_dict(*args, **kwargs)
        finally:
            self._modules.update(hidden)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._drop_clones()
        super()._load_from_state_dict(*args, **kwargs)

    def to_string(self) -> str:
        if self.module is None:
            return f"{self.typename} {{ }}"
        return f"{self.typename} {{\n  {indented(self.module, ' ' * 8)}\n}}"


def describe_module(module: torch.nn.Module) -> str:
    """A module's class, for messages."""
    return module.typename if isinstance(module, Stateful) else type(module).__name__


class DataParallelTable(Container):
    """A model that Torch7 copied to several GPUs, each working on its part of a batch. Here it is the one model.

    From a file comes the first copy, and one is written. To use several GPUs, give it (or its ``get(0)``) to
    ``torch.nn.parallel.DistributedDataParallel``.

    Args:
        dimension: along which a batch was divided; from 0.
        flatten_params: whether Torch7 keeps the parameters in one flat tensor.
        usenccl: whether Torch7 uses NCCL.

    Follows Torch7's ``cunn/DataParallelTable.lua``.

    >>> import clearstate.nn as nn
    >>> net = DataParallelTable(0).add(nn.Linear(4, 3), [0])
    >>> net, net(torch.ones(2, 4)).shape
    (DataParallelTable: 1 x nn.Linear(4 -> 3), torch.Size([2, 3]))
    """

    version = 3
    fields = index("dimension gpuAssignments") | plain("typeStr flattenParams usenccl")
    dimension: int = 0
    gpu_assignments: list[int]
    type_str: str = "torch.CudaTensor"
    flatten_params: bool = False
    usenccl: bool = False

    def __init__(self, dimension: int, flatten_params: bool = False, usenccl: bool = False) -> None:
        super().__init__()
        self.dimension = dimension
        self.flatten_params = flatten_params
        self.usenccl = usenccl
        self.gpu_assignments = []

    def add(self, module: torch.nn.Module, gpus: int | list[int] = 0) -> DataParallelTable:
        """Sets the model; of the GPUs (from 0) that Torch7 would use, the first is written to files.

        Raises:
            ValueError: there is another model.
        """
        if len(self) and self.get(0) is not module:
            raise ValueError(f"{self.typename} takes one module, and has {describe_module(self.get(0))}")
        if not len(self):
            super().add(module)
            self.gpu_assignments = [gpus] if isinstance(gpus, int) else list(gpus[:1])
        return self

    def update_output(self, input: Any) -> Any:
        return self.get(0)(lent(self.get(0), input))

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.pop("impl", None)  # Torch7 makes one where there is none

    def loaded(self) -> None:
        self.renew(self.children_list()[:1])
        self.gpu_assignments = list(self.gpu_assignments or [0])[:1]

    def to_object(self, obj: t7.Object, writing: Any) -> None:
        super().to_object(obj, writing)
        obj.header = obj["gpuAssignments"]

    def to_string(self) -> str:
        return f"DataParallelTable: {len(self.gpu_assignments)} x {self.get(0) if len(self) else 'nil'}"
