"""fast-neural-style's loss of images by the features of another net: layers put into it that measure, and their sum."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..containers.sequential import Container, Sequential
from ..criterions.elements import MSECriterion, SmoothL1Criterion
from ..declarations.bad_input import expect
from ..declarations.fields import plain
from ..layers.reduction import Mean
from ..protocol.module import Criterion, Module
from ..protocol.tape import Way, calls, recording
from .fast_neural_style import DeepDreamLoss, GramMatrix
from .gradients import penalized

MODES = ("none", "capture", "loss")


class _Measuring(threading.local):
    modes: dict[type, str] | None = None
    losses: list[tuple[Any, Tensor]]


_measuring = _Measuring()


@contextmanager
def measuring(**modes: str) -> Iterator[list[tuple[Any, Tensor]]]:
    """Within the block ``ContentLoss=`` and ``StyleLoss=`` layers are in these modes, whatever they say themselves.

    Their losses are handed over in the list, as tensors with a graph, and add nothing to gradients by themselves.
    """
    outer = _measuring.modes, getattr(_measuring, "losses", [])
    _measuring.modes = {kind: modes[kind.__name__] for kind in (ContentLoss, StyleLoss)}
    made: list[tuple[Any, Tensor]] = []
    _measuring.losses = made
    try:
        yield made
    finally:
        _measuring.modes, _measuring.losses = outer


class _Measured(Module):
    """What both layers do: give their input, capture what is due, measure how far what came is from it."""

    fields = plain("strength mode crit", _ignore="ignored")
    transient = ("loss",)
    strength: float
    mode: str = "none"
    crit: Criterion
    target: Tensor
    ignored: bool | None = None
    """Whether the layer was put into a net, and is not counted there."""
    loss: float

    def __init__(self, strength: float = 1.0, loss_type: str = "L2") -> None:
        super().__init__()
        kinds = {"L2": MSECriterion, "SmoothL1": SmoothL1Criterion}
        if loss_type not in kinds:
            raise ValueError(f"a loss is L2 or SmoothL1, not {loss_type!r}")
        self.strength, self.mode, self.loss = strength, "none", 0
        self.crit = kinds[loss_type]()
        self.register_buffer("target", torch.empty(0))

    def set_mode(self, mode: str) -> None:
        """Sets ``mode``: ``"none"``, ``"capture"`` (what comes is what is due from now on) or ``"loss"``.

        Raises:
            ValueError: it is none of these.
        """
        if mode not in MODES:
            raise ValueError(f"a mode is one of {', '.join(MODES)}, not {mode!r}")
        self.mode = mode

    def features(self, input: Tensor) -> Tensor:
        """What is compared."""
        return input

    def due(self, features: Tensor) -> Tensor:
        """What it is compared with."""
        return self.target

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        modes = _measuring.modes
        mode = self.mode if modes is None else modes[type(self)]
        if mode == "none":
            return input
        features = self.features(input)
        if mode == "capture":
            self.target = features.detach().clone()
            return input
        due = self.due(features)
        if not due.numel():
            raise ValueError("there is nothing to compare with: run it in mode 'capture' first")
        loss: Tensor = self.crit(features, due) * self.strength
        if recording():
            self.keep("loss", loss.detach().item())
        if modes is None:
            return penalized(input, loss)
        _measuring.losses.append((self, loss))
        return input


class ContentLoss(_Measured):
    """Gives its input; in mode ``"loss"`` adds the gradient of its distance to ``target``, times ``strength``.

    Args:
        strength: the factor.
        loss_type: the distance, ``"L2"`` or ``"SmoothL1"``.

    ``loss`` is the last distance that `forward` found. Follows fast-neural-style's ``ContentLoss.lua``.

    >>> layer = ContentLoss(0.5)
    >>> layer.set_mode("capture"); _ = layer(torch.zeros(2))
    >>> layer.set_mode("loss")
    >>> layer.forward(torch.ones(2)), layer.loss, layer.backward(torch.ones(2), torch.zeros(2))
    (tensor([1., 1.]), 0.5, tensor([0.5000, 0.5000]))
    """


class StyleLoss(_Measured):
    """As `ContentLoss`, by what the image's planes have to do with each other wherever: a Gram matrix, or their means.

    Args:
        strength: the factor.
        loss_type: the distance, ``"L2"`` or ``"SmoothL1"``.
        agg_type: ``"gram"`` or ``"mean"``.

    Shapes: ``batch x planes x h x w``; a ``target`` captured of one image is for all of a batch. Follows
    fast-neural-style's ``StyleLoss.lua``.

    >>> layer = StyleLoss()
    >>> layer.set_mode("capture"); _ = layer(torch.zeros(1, 2, 3, 3))
    >>> layer.target.shape
    torch.Size([1, 2, 2])
    """

    fields = plain("agg_type agg")
    agg_type: str = "gram"
    agg: Module

    def __init__(self, strength: float = 1.0, loss_type: str = "L2", agg_type: str = "gram") -> None:
        super().__init__(strength, loss_type)
        if agg_type not in ("gram", "mean"):
            raise ValueError(f"style is by gram or mean, not {agg_type!r}")
        self.agg_type = agg_type
        self.agg = GramMatrix() if agg_type == "gram" else Sequential(Mean(2), Mean(2))

    def features(self, input: Tensor) -> Tensor:
        return self.agg(input)  # type: ignore[no-any-return]

    def due(self, features: Tensor) -> Tensor:
        return self.target.expand_as(features) if len(self.target) == 1 else self.target


class PerceptualCriterion(Criterion):
    """How far images are from others in content and in style, by the features of a net.

    Args:
        cnn: the net; it is put into evaluation, gets the layers that measure, and loses what follows the last of these.
        content_layers: after which of its layers content is compared: paths from 0, ``"3"`` or ``"1.0"``.
        content_weights: a factor for each.
        style_layers, style_weights: likewise for style.
        deepdream_layers, deepdream_weights: likewise for `DeepDreamLoss`, which adds its gradient and no loss.
        loss_type: the distance, ``"L2"`` or ``"SmoothL1"``.

    Shapes: ``batch x 3 x h x w``; the target is a dict of ``content_target``, of as many images, and ``style_target``,
    of one; what it has not is what was last due. Follows fast-neural-style's ``PerceptualCriterion.lua``.

    >>> import clearstate.nn as nn
    >>> loss = PerceptualCriterion(nn.Sequential(nn.SpatialConvolution(3, 4, 3, 3), nn.ReLU(), nn.ReLU()), ["1"], [2.0])
    >>> x = torch.rand(1, 3, 8, 8)
    >>> loss.forward(x, {"content_target": x}), len(loss.net)
    (0.0, 3)
    """

    fields = plain("net content_loss_layers style_loss_layers deepdream_loss_layers")
    net: Any
    content_loss_layers: list[Any]
    style_loss_layers: list[Any]
    deepdream_loss_layers: list[Any]

    def __init__(
        self,
        cnn: Container,
        content_layers: Sequence[str] = (),
        content_weights: Sequence[float] = (),
        style_layers: Sequence[str] = (),
        style_weights: Sequence[float] = (),
        deepdream_layers: Sequence[str] = (),
        deepdream_weights: Sequence[float] = (),
        loss_type: str = "L2",
    ) -> None:
        super().__init__()
        cnn.eval()
        content = [ContentLoss(weight, loss_type) for weight in content_weights]
        style = [StyleLoss(weight, loss_type) for weight in style_weights]
        dreams = [DeepDreamLoss(weight) for weight in deepdream_weights]
        wanted = zip([*content_layers, *style_layers, *deepdream_layers], [*content, *style, *dreams], strict=True)
        for path, layer in wanted:
            insert_after(cnn, path, layer)
        last = max((i for i, child in enumerate(cnn) if _holds_inserted(child)), default=-1)
        for _ in range(len(cnn) - last - 1):
            cnn.remove()
        self.net = cnn
        self.__dict__.update(content_loss_layers=content, style_loss_layers=style, deepdream_loss_layers=dreams)

    def set_content_target(self, target: Tensor) -> None:
        """Makes images those whose content is due."""
        self._captured(target, ContentLoss="capture", StyleLoss="none")

    def set_style_target(self, target: Tensor) -> None:
        """Makes an image that whose style is due."""
        self._captured(target, ContentLoss="none", StyleLoss="capture")

    def _captured(self, target: Tensor, **modes: str) -> None:
        outer, calls.way = calls.way, Way.PLAIN  # what is due is no part of what is recorded
        try:
            with measuring(**modes), torch.no_grad():
                self.net(target)
        finally:
            calls.way = outer

    def set_content_weight(self, weight: float) -> None:
        """Sets the factor of all layers that compare content."""
        for layer in self.content_loss_layers:
            layer.strength = weight

    def set_style_weight(self, weight: float) -> None:
        """Sets the factor of all layers that compare style."""
        for layer in self.style_loss_layers:
            layer.strength = weight

    def update_output(self, input: Tensor, target: Any = None) -> Any:
        expect(input)
        due = target if isinstance(target, dict) else {}
        if due.get("content_target") is not None:
            self.set_content_target(due["content_target"])
        if due.get("style_target") is not None:
            self.set_style_target(due["style_target"])
        with measuring(ContentLoss="loss", StyleLoss="loss") as losses:
            output = self.net(input)
        total: Tensor = sum((loss for _, loss in losses), input.new_zeros(()))
        if self.deepdream_loss_layers or not losses:
            total = total + (output * 0).sum()  # the way back leads through all of the net
        return total


def insert_after(net: Container, path: str, layer: Any) -> None:
    """Puts a layer into a net behind the one at a path, which does not count layers that were put there like this.

    Raises:
        ValueError: there is no layer at the path.
    """
    layer.ignored = True
    *outer, last = path.split(".")
    at: Any = net
    for name in outer:
        at = _counted(at, name, path)[1]
    at.insert(layer, _counted(at, last, path)[0] + 1)


def _counted(container: Any, name: str, path: str) -> tuple[int, Any]:
    children = [(i, child) for i, child in enumerate(container) if not getattr(child, "ignored", None)]
    if not name.isdigit() or int(name) >= len(children):
        raise ValueError(f"the net has no layer {path}")
    return children[int(name)]


def _holds_inserted(module: torch.nn.Module) -> bool:
    return any(getattr(inner, "ignored", None) for inner in module.modules())
