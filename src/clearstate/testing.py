"""Checks for people who write layers: the gradients are right, the three promises hold, a file gives the same layer.

    from clearstate.testing import check_gradients, check_io, check_promises
    check_promises(MyLayer(), torch.randn(5, 3))

Each raises ``AssertionError`` saying what does not hold. They follow Torch7's ``nn.Jacobian``.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .formats import t7
from .live.inventory import inspect
from .nn import Criterion
from .nn.protocol.ownership import Kept, mapped, tensors
from .nn.protocol.stateful import KEPT, Stateful
from .nn.t7.files import to_graph, to_live
from .roles import Role


def check_promises(module: Stateful, input: Kept, target: Kept = None) -> None:
    """The three promises of `clear_state`: as constructed, references survive, nothing is lost.

    Args:
        module: a layer, a net, or a criterion (then with a target). It is left cleared, its gradients added to.
        input: what its forward takes.
        target: a criterion's target.

    >>> import clearstate.nn as nn
    >>> check_promises(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(5, 3))
    """
    run = _Run(module, input, target)
    module.clear_state()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    before = mapped(run.input, lambda t: t.clone())
    made = _contents(module)

    output, grad = run.forward(), run.backward()
    first = mapped(output, lambda t: t.clone()), mapped(grad, lambda t: t.clone())
    held = [(m, name, getattr(m, name), list(tensors(getattr(m, name)))) for m in _stateful(module) for name in KEPT]
    assert module.clear_state() is module, "clear_state does not return the module"

    assert _contents(module) == made, f"not as constructed: {_difference(made, _contents(module))}"
    left = [e for e in inspect(module).select(Role.TRANSIENT) if e.bytes]
    assert not left, f"{left[0].bytes} bytes of work are left in {left[0].path}"
    for m, name, value, parts in held:
        if isinstance(value, Tensor | list | dict):
            assert getattr(m, name) is value, f"{m.typename}.{name} is another object after clearing"
        assert not any(t.numel() for t in parts), f"a tensor of {m.typename}.{name} held from outside is not empty"
    assert _equal(run.input, before), "clearing changed the caller's input"
    for name, value in module.state_dict().items():
        assert _same_bits(value, state[name]) or name in run.buffers, f"{name} is not what it was"

    module.clear_state()
    assert _contents(module) == made, "a second call of clear_state changes something"
    again = run.forward()
    assert _close(again, first[0]), "forward gives other numbers after clearing"
    if isinstance(again, Tensor | list | dict):
        assert again is output, "forward fills another object than the one that was held"
    assert _close(run.backward(), first[1]), "backward gives other numbers after clearing"
    module.clear_state()


def check_io(module: Stateful, input: Kept, target: Kept = None) -> None:
    """A module gives the same numbers after clearing and after a file, whatever state it was saved in.

    Forward, backward, save, load, forward, backward; as a ``.t7`` file, as a pickle and as a deep copy; with what work
    left on it and cleared.

    >>> import clearstate.nn as nn
    >>> check_io(nn.Linear(3, 2), torch.randn(5, 3))
    """
    run = _Run(module, input, target)
    output = mapped(run.forward(), lambda t: t.clone())
    grad = mapped(run.backward(), lambda t: t.clone())
    for cleared in (False, True):
        if cleared:
            module.clear_state()
        for way, copied in COPIES.items():
            other = _Run(copied(module), input, target, like=run)
            state = "a cleared module" if cleared else "a module in use"
            assert _close(other.forward(), output), f"forward gives other numbers after {way} of {state}"
            assert _close(other.backward(), grad), f"backward gives other numbers after {way} of {state}"


def _through_torch(module: Stateful) -> Any:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES: dict[str, Callable[[Any], Any]] = {
    "a file": lambda module: to_live(t7.loads(t7.dumps(to_graph(module)))).train(module.training),
    "pickling": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": _through_torch,
    "a deep copy": copy.deepcopy,
}


def check_gradients(
    module: Stateful, input: Kept, target: Kept = None, *, step: float = 1e-6, tolerance: float = 1e-5
) -> None:
    """The protocol's gradients against differences of the output, in double precision.

    Args:
        module: a layer, a net, or a criterion. A copy of it in double precision is checked.
        input: what its forward takes.
        target: a criterion's target.
        step: how far each number is moved, both ways.
        tolerance: the largest difference allowed.

    >>> import clearstate.nn as nn
    >>> check_gradients(nn.Linear(3, 2), torch.randn(5, 3))
    """
    checked = copy.deepcopy(module).double()
    input = mapped(input, lambda t: t.detach().double() if t.is_floating_point() else t)
    run = _Run(checked, input, target)
    checked.zero_grad(set_to_none=True)
    run.forward()
    weights = run.weights()
    grads = list(tensors(run.backward()))
    places = [(f"input {i}", t, g) for i, (t, g) in enumerate(zip(tensors(input), grads, strict=True))]
    places += [
        (name, p.data, p.grad) for name, p in checked.named_parameters() if p.requires_grad and p.grad is not None
    ]
    for name, tensor, grad in places:
        if tensor.is_floating_point():
            numeric = _differences(run, weights, tensor, step)
            wrong = float((numeric - grad).abs().max()) if tensor.numel() else 0.0
            assert wrong <= tolerance, f"the gradient of {name} is off by {wrong:.3g}"


def _differences(run: _Run, weights: list[Tensor], tensor: Tensor, step: float) -> Tensor:
    """The derivative of the weighted output with respect to each number of a tensor, by central differences."""
    numeric = torch.zeros(tensor.shape, dtype=torch.float64)
    for index in (
        torch.cartesian_prod(*(torch.arange(n) for n in tensor.shape)).reshape(-1, max(tensor.dim(), 1)).tolist()
    ):
        place = tuple(index)
        was = tensor[place].item()
        tensor[place] = was + step
        above = run.weighted(weights)
        tensor[place] = was - step
        below = run.weighted(weights)
        tensor[place] = was
        numeric[place] = (above - below) / (2 * step)
    return numeric


class _Run:
    """Calls of a module with always the same input, gradients of the output, and random numbers."""

    def __init__(self, module: Any, input: Kept, target: Kept, like: _Run | None = None) -> None:
        self.random: Tensor = like.random if like else torch.get_rng_state()
        self.buffers: dict[str, Tensor] = (
            like.buffers if like else {name: buffer.clone() for name, buffer in module.named_buffers()}
        )
        self.module = module
        self.input = input
        self.target = target
        self.grads: Kept = like.grads if like else None

    def forward(self) -> Kept:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.set_rng_state(self.random)
            for name, buffer in self.module.named_buffers():
                buffer.copy_(self.buffers[name])
            with torch.enable_grad():
                if isinstance(self.module, Criterion):
                    return self.module.forward(self.input, self.target)
                return self.module.forward(self.input)

    def backward(self) -> Kept:
        if isinstance(self.module, Criterion):
            return self.module.backward(self.input, self.target)
        if self.grads is None:
            random = torch.Generator().manual_seed(1)
            self.grads = mapped(
                self.module.output,
                lambda t: (
                    torch.randn(t.shape, generator=random, dtype=torch.float64).to(t.dtype)
                    if t.is_floating_point()
                    else torch.zeros_like(t)
                ),
            )
        return self.module.backward(self.input, self.grads)

    def weights(self) -> list[Tensor]:
        self.backward()
        self.module.zero_grad(set_to_none=True)
        return list(tensors(self.grads))

    def weighted(self, weights: list[Tensor]) -> float:
        output = self.forward()
        if isinstance(output, int | float):
            return float(output)
        return sum(float((o.double() * w.double()).sum()) for o, w in zip(tensors(output), weights, strict=True))


def _stateful(module: torch.nn.Module) -> Iterator[Stateful]:
    return (inner for inner in module.modules() if isinstance(inner, Stateful))


def _contents(module: torch.nn.Module) -> dict[str, Any]:
    """What every module of a net has besides parameters and buffers, in a form that can be compared."""
    found: dict[str, Any] = {}
    for path, inner in module.named_modules():
        kept = {name: getattr(inner, name) for name in KEPT} if isinstance(inner, Stateful) else {}
        for name, value in {**inner.__dict__, **kept}.items():
            if name not in ("_parameters", "_buffers", "_modules", "_constructed", "_former"):
                found[f"{path}.{name}"] = _comparable(value)
    return found


def _comparable(value: Any) -> Any:
    if isinstance(value, Tensor | list | dict) and not any(t.numel() for t in tensors(value)) and not _plain(value):
        return "empty"
    if isinstance(value, Tensor):
        return (value.dtype, tuple(value.shape), value.tolist())
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _comparable(item) for key, item in value.items()}
    return value if isinstance(value, int | float | str | bool | bytes | None) else type(value)


def _plain(value: Kept) -> bool:
    """Whether a list or dict holds something other than tensors."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(not isinstance(part, Tensor | list | dict) or _plain(part) for part in parts)


def _difference(a: dict[str, Any], b: dict[str, Any]) -> str:
    names = [name for name in {**a, **b} if a.get(name, "absent") != b.get(name, "absent")]
    return ", ".join(f"{n.lstrip('.')} was {a.get(n, 'absent')} and is {b.get(n, 'absent')}" for n in names)


def _equal(a: Kept, b: Kept) -> bool:
    ours, theirs = list(tensors(a)), list(tensors(b))
    return len(ours) == len(theirs) and all(_same_bits(x, y) for x, y in zip(ours, theirs, strict=True))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))


def _close(a: Kept, b: Kept) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= 1e-6 * max(1, abs(b)) or a == b
    ours, theirs = ([t for t in tensors(v) if t.numel()] for v in (a, b))
    return len(ours) == len(theirs) and all(
        x.shape == y.shape and torch.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True)
        for x, y in zip(ours, theirs, strict=True)
    )
