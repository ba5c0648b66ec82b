"""Nets of generated source that are pickled, copied and saved whole: their source goes along, so that they are made
again anywhere, without clearstate.

``torch.fx.GraphModule`` does the same. A pickle names functions only, so it names ``eval``, with what is below as text.
"""

from __future__ import annotations

import hashlib
import inspect
from types import ModuleType
from typing import Any


def module_of(source: str, name: str, code: str) -> Any:
    """The module that this source makes, once for a name; its classes pickle with their source.

    Args:
        source: of the module.
        name: under which it is imported from then on.
        code: the source of this function.
    """
    import linecache
    import sys
    from types import ModuleType

    if name in sys.modules:
        return sys.modules[name]
    module: Any = ModuleType(name)
    module.__file__ = file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), vars(module))

    def reduced(self: Any, protocol: Any) -> Any:
        kind = type(self)
        if vars(module).get(kind.__name__) is not kind:
            return object.__reduce_ex__(self, protocol)
        given = {"source": source, "name": name, "code": code, "kind": kind.__name__}
        made = "exec(code, globals()) or object.__new__(getattr(module_of(source, name, code), kind))"
        return eval, (made, given), self.__dict__

    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == name:
            setattr(value, "__reduce_ex__", reduced)  # noqa: B010
    sys.modules[name] = module
    return module


def generated(source: str) -> ModuleType:
    """The module that a net's source makes; the same for the same source.

    >>> one = generated("class Net: pass")
    >>> one is generated("class Net: pass"), one.__name__
    (True, 'net_b502de183b5c')
    """
    code = "from __future__ import annotations\n\n" + inspect.getsource(module_of)
    name = f"net_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    module: ModuleType = module_of(source, name, code)
    return module
