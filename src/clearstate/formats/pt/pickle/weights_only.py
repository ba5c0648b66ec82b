"""What ``torch.load`` may be made to call: what ``weights_only=True`` lets a file name, and what reaches outside."""

from __future__ import annotations

from .stubs import DTYPE_BYTES, STORAGE_DTYPE

READ = frozenset(
    """
    collections.OrderedDict collections.Counter _codecs.encode builtins.bytearray builtins.set builtins.complex
    __builtin__.bytearray __builtin__.set __builtin__.complex
    torch.Size torch.Tensor torch.device torch.nn.parameter.Parameter torch.serialization._get_layout
    torch.storage.UntypedStorage torch.storage.TypedStorage torch._tensor._rebuild_from_type_v2
    torch._utils._rebuild_parameter torch._utils._rebuild_parameter_with_state torch._utils._rebuild_qtensor
    torch._utils._rebuild_tensor torch._utils._rebuild_tensor_v2 torch._utils._rebuild_tensor_v3
    torch._utils._rebuild_sparse_tensor torch._utils._rebuild_meta_tensor_no_storage
    torch._utils._rebuild_nested_tensor torch._utils._rebuild_wrapper_subclass
    torch.per_tensor_affine torch.per_tensor_symmetric torch.per_channel_affine torch.per_channel_symmetric
    torch.per_channel_affine_float_qparams
    """.split()
    + [f"torch.{name}" for name in (*DTYPE_BYTES, *STORAGE_DTYPE) if name != "UntypedStorage"]
)
"""What ``torch.load(weights_only=True)`` lets a file name: see ``torch/_weights_only_unpickler.py``."""

DANGEROUS = frozenset(
    "os posix nt subprocess sys shutil socket runpy importlib ctypes pty commands webbrowser pickle marshal code "
    "asyncio multiprocessing http urllib requests ftplib smtplib builtins.eval builtins.exec builtins.compile "
    "builtins.open builtins.__import__ builtins.getattr builtins.setattr __builtin__.eval __builtin__.exec "
    "__builtin__.open __builtin__.getattr operator.attrgetter operator.methodcaller torch.hub torch.load "
    "torch.utils.cpp_extension".split()
)
"""Modules and functions that reach outside: a checkpoint that calls one is an attack."""


def is_dangerous(name: str) -> bool:
    """Whether a function reaches outside the program.

    >>> is_dangerous("posix.system"), is_dangerous("torch._utils._rebuild_tensor_v2")
    (True, False)
    """
    parts = name.split(".")
    return any(".".join(parts[:i]) in DANGEROUS for i in range(1, len(parts) + 1))
