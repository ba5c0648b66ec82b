"""rnn's modules that are called once a step: in a sequence, each step reads what the last one handed on."""

from __future__ import annotations

from typing import Any

from ....nn.packs import recurrent
from ...values import Value, leaves
from ..table import rule


def step(m: Any, to: Any, advance: Any) -> Any:
    """One step: ``advance(state)`` gives the output and the next state; the state is `None` in a first step."""
    state = to.memory[-1].get(id(m)) if to.memory else None
    output, after = advance(state)
    if to.memory:
        to.memory[-1][id(m)] = after
    return output


def zeros(x: Value, to: Any, *size: int, dims: int = 1) -> Any:
    """Zeros of a size for an input, or for each of a batch."""
    batch = "".join(f"{{0}}.shape[{i}], " for i in range(x.ndim - dims))
    return to.code(f"{{0}}.new_zeros({batch}{', '.join(str(int(n)) for n in size)})", x)


@rule(recurrent.Recursor, becomes="its module, step by step", container=True)
def recursor(m: Any, x: Any, to: Any) -> Any:
    return to.child(m.inner, "0", x)


@rule(recurrent.Recurrence, becomes="its module, step by step", container=True)
def recurrence(m: Any, x: Any, to: Any) -> Any:
    first = next(leaves(x))

    def made(size: Any) -> Any:
        if isinstance(size[0], list):
            return [made(part) for part in size]
        return zeros(first, to, *size, dims=int(m.n_input_dim))

    def advance(state: Any) -> Any:
        output = to.child(m.inner, "0", [x, made(m.output_size) if state is None else state])
        return output, output

    return step(m, to, advance)


@rule(recurrent.Recurrent, becomes="its modules, step by step", container=True)
def plain(m: Any, x: Any, to: Any) -> Any:
    start, first, feedback, transfer, merge = m.children_in_order()

    def called(child: tuple[str, Any], input: Any) -> Any:
        return to.child(child[1], child[0], input)

    def advance(state: Any) -> Any:
        taken = called(first, x)
        merged = called(start, taken) if state is None else called(merge, [taken, called(feedback, state)])
        output = called(transfer, merged)
        return output, output

    return step(m, to, advance)


@rule(recurrent.NormStabilizer, becomes="nothing: its penalty is for training in Torch7", container=True)
def stabilizer(m: Any, x: Any, to: Any) -> Any:
    return x


@rule(recurrent.SAdd, becomes="x + number")
def added(m: Any, x: Value, to: Any) -> Any:
    if m.negate and m.addend == -1:
        return to.code("1 - {0}", x)
    return to.code(f"-({{0}} + {m.addend!r})" if m.negate else f"{{0}} + {m.addend!r}", x)
