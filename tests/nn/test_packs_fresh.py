"""What Python constructs is written with the fields that Torch7's constructor leaves, in dpnn's and rnn's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.packs import dpnn, rnn
from clearstate.nn.t7.files import to_graph
from tests.nn.test_packs_recorded import at
from tests.nn.test_written import fields, kinds
from tests.recordings import PACKS, case, names

MADE: dict[str, Callable[[], Any]] = {
    "CategoricalEntropy-1": lambda: dpnn.CategoricalEntropy(0.5),
    "Clip-1": lambda: dpnn.Clip(-0.5, 0.5),
    "FastLSTM-1": lambda: rnn.FastLSTM(4, 3),
    "Inception-1": lambda: dpnn.Inception(3, [4, 5], [2, 2, 2, 2], kernel_size=[3, 5]),
    "LSTM-1": lambda: rnn.LSTM(4, 3),
    "LinearNoBias-1": lambda: rnn.LinearNoBias(4, 3),
    "LookupTableMaskZero-1": lambda: rnn.LookupTableMaskZero(5, 3),
    "NormStabilizer-1": rnn.NormStabilizer,
    "ReverseTable-1": dpnn.ReverseTable,
    "SeqBRNN-1": lambda: rnn.SeqBRNN(4, 3),
    "SeqGRU-1": lambda: rnn.SeqGRU(4, 3),
    "SeqLSTM-1": lambda: rnn.SeqLSTM(4, 3),
    "SeqLSTMP-1": lambda: rnn.SeqLSTMP(4, 5, 3),
    "Sequencer-1": lambda: rnn.Sequencer(rnn.LSTM(4, 3)),
    "Sequencer-2": lambda: rnn.Sequencer(rnn.FastLSTM(4, 3)),
    "Sequencer-4": lambda: rnn.Sequencer(nn.Sequential(rnn.FastLSTM(4, 3), nn.Linear(3, 5), nn.LogSoftMax())),
    "Sequencer-5": lambda: rnn.Sequencer(nn.Linear(4, 3)),
    "Sequencer-7": lambda: rnn.Sequencer(nn.Sequential(nn.Linear(4, 4), nn.Tanh())),
    "Sequencer-8": lambda: rnn.Sequencer(
        rnn.Recurrence(nn.Sequential(nn.JoinTable(0, 1), nn.Linear(7, 3), nn.Tanh()), 3, 1)
    ),
    "Serial-1": lambda: dpnn.Serial(nn.Sequential(nn.Linear(4, 3))),
    "SpatialFeatNormalization-1": lambda: dpnn.SpatialFeatNormalization(torch.ones(3)),
}

WORK = ("output", "gradInput")
"""Of a container these are a tensor or a table, as its last work had it: the recorder's fresh ones had worked."""

OF_WRITING = "dpnn_typename"
"""What Serial puts on all modules inside when Torch7 writes it."""


@pytest.mark.parametrize("name", names(name for name in PACKS if name.removeprefix("packs/") in MADE))
def test_a_module_made_in_python_has_the_fields_of_one_that_torch7_made(name: str) -> None:
    theirs = t7.load(case(name) / "fresh.t7")
    ours = to_graph(MADE[name.removeprefix("packs/")]().double())
    missing = {
        path: kind
        for path, kind in fields(theirs).items()
        if kinds(at(ours, path)) != kind and not path.endswith((*WORK, OF_WRITING))
    }
    assert missing == {}
    if not name.startswith("packs/LookupTable"):  # nn's own entry has fields of older versions
        added = {path for path in fields(ours) if at(theirs, path) is None}
        assert {path for path in added if not path.endswith("train")} == set()
