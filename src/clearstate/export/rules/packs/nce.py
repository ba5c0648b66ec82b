"""dpnn's noise contrastive estimation: a linear layer and a softmax, once it is learnt."""

from __future__ import annotations

from typing import Any

from ....nn.packs import nce
from ...calls import call
from ..table import Unmapped, rule


@rule(nce.NCEModule, becomes="nn.Linear, softmax")
def estimation(m: Any, table: Any, to: Any) -> Any:
    if not m.normalized:
        raise Unmapped("it draws noise: set normalized = True")
    outputs, inputs = m.weight.shape
    made = call("nn.Linear", inputs, outputs, bias=None if m.bias is not None else False)
    scores = to.layer(table[0], made, "fc", weight=m.weight, bias=m.bias)
    return to.code("{0}.log_softmax(1)" if m.logsoftmax else "{0}.softmax(1)", scores)
