"""A mode in which operations that make the host wait for a GPU are errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal", "_unique2", "unique_dim"}
"""Operations whose result the host needs, so that it would wait for a GPU."""


class NothingWaits(TorchDispatchMode):
    """Refuses what would make the host wait for a GPU; a mask as an index has to be counted first."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith("index") and isinstance(args[1], (list, tuple)) else ()
        masks = [i for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]
        assert name not in WAITING and not masks, f"{func} would wait for a GPU"
        return func(*args, **(kwargs or {}))
