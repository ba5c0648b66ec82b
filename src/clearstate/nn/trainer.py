"""Torch7's trainer: one example after the other, a step after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .declarations.fields import plain
from .protocol.module import Criterion, Module
from .protocol.stateful import CLASSES


class StochasticGradient:
    """Trains a module on a data set by stochastic gradient descent. Follows Torch7's ``nn/StochasticGradient.lua``.

    Attributes:
        learning_rate: the first step's size; 0.01.
        learning_rate_decay: the rate is divided by 1 plus this times the iteration's number; 0.
        max_iteration: passes over the data set; 0 or less for no end (a hook may raise); 25.
        shuffle_indices: whether examples come in an order drawn at random, once; else in the data set's.
        verbose: whether to print the error of each pass.
        hook_example: called with the trainer and the example after each example.
        hook_iteration: called with the trainer, the pass's number (from 1) and its mean error after each pass.

    >>> import clearstate.nn as nn
    >>> net, x = nn.Linear(1, 1), torch.tensor([1.0])
    >>> trainer = StochasticGradient(net, nn.MSECriterion())
    >>> trainer.verbose, trainer.learning_rate = False, 0.1
    >>> trainer.train([(x, 3 * x), (-x, -3 * x)])
    # StochasticGradient: training
    # StochasticGradient: you have reached the maximum number of iterations
    # training error = ...
    >>> bool((net(x) - 3 * x).abs() < 0.01)
    True
    """

    typename = "nn.StochasticGradient"
    version = 1
    fields = plain("learningRate learningRateDecay maxIteration shuffleIndices module criterion verbose")

    hook_example: Callable[[StochasticGradient, Any], Any] | None = None
    hook_iteration: Callable[[StochasticGradient, int, float], Any] | None = None

    def __init__(self, module: Module, criterion: Criterion) -> None:
        self.learning_rate = 0.01
        self.learning_rate_decay = 0.0
        self.max_iteration = 25
        self.shuffle_indices = True
        self.module = module
        self.criterion = criterion
        self.verbose = True
        self.extra: dict[Any, Any] = {}

    @classmethod
    def from_object(cls, made: StochasticGradient, obj: Any, reading: Any) -> None:
        """Fills a trainer from an object of a file. Its hooks are Lua functions: they are written back, never run."""
        made.extra = {}
        for field in cls.fields.values():
            setattr(made, field.attribute, None)  # as in Lua, what the class had not yet when the file was written
        for name, raw in obj.state.items():
            if name in cls.fields:
                setattr(made, cls.fields[name].attribute, reading.value(raw))
            else:
                made.extra[name] = raw

    def to_object(self, obj: Any, writing: Any) -> None:
        """Fills an object of a file from this trainer."""
        for name, field in self.fields.items():
            value = getattr(self, field.attribute)
            if value is not None:
                obj.state[name] = writing.value(value)
        for name, raw in self.extra.items():
            obj.state[name] = writing.value(raw)

    def __repr__(self) -> str:
        return self.typename

    def train(self, dataset: Sequence[Any]) -> None:
        """Trains until ``max_iteration`` passes are done.

        Args:
            dataset: has a length; ``dataset[i]`` is an input and a target.
        """
        count = len(dataset)
        order = torch.randperm(count).tolist() if self.shuffle_indices else range(count)
        rate = self.learning_rate
        iteration = 1
        print("# StochasticGradient: training")
        while True:
            error = sum(self._step(dataset[i], rate) for i in order) / count
            if self.hook_iteration is not None:
                self.hook_iteration(self, iteration, error)
            if self.verbose:
                print(f"# current error = {error}")
            iteration += 1
            rate = self.learning_rate / (1 + iteration * self.learning_rate_decay)
            if 0 < self.max_iteration < iteration:
                print("# StochasticGradient: you have reached the maximum number of iterations")
                print(f"# training error = {error}")
                return

    def _step(self, example: Any, rate: float) -> float:
        """One example: its error, and a step against its gradient."""
        input, target = example[0], example[1]
        error = float(self.criterion.forward(self.module.forward(input), target))
        gradient = self.criterion.update_grad_input(self.module.output, target)
        self.module.update_grad_input(input, gradient)
        self.module.acc_update_grad_parameters(input, gradient, rate)
        if self.hook_example is not None:
            self.hook_example(self, example)
        return error


CLASSES[StochasticGradient.typename] = StochasticGradient  # type: ignore[assignment]
