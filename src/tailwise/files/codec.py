"""Dataclasses as JSON and arrays, and back: one walk over their annotations writes, reads and checks.

A field is an annotation and nothing else; `tailwise.options` has those with limits. `read` refuses a
value of another type or beyond its limits, a field that is missing or unknown, and what the class itself
refuses. It builds classes that annotations name and no others. Arrays are kept apart, by their places.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from tailwise.distributions.members import NIG, Distribution, Mixture, Normal, Parametric
from tailwise.lookup import nearest
from tailwise.options import AnyNumber, Items, checked_value

Arrays = dict[str, Tensor]
LARGEST = 1 << 53
"""Whole numbers beyond this are refused."""
SMALLER = {
    torch.float64: (torch.float16, torch.float32),
    torch.int64: (torch.int8, torch.int16, torch.int32),
}
"""Types in which the arrays of a type are stored where that loses nothing."""


# -- write -----------------------------------------------------------------------------------------


def write(kind: Any, value: Any, where: str, arrays: Arrays) -> Any:
    """Return a value of an annotated kind as JSON has it; its arrays go into `arrays`."""
    kind, _ = _bare(kind)
    if kind is Any:
        return plain(value, where)
    if value is None or kind in (bool, int, float, str) or get_origin(kind) is Literal:
        return plain(value, where)
    if isinstance(value, (np.ndarray, Tensor)):
        tensor = value if isinstance(value, Tensor) else _smallest(torch.from_numpy(np.array(value)))
        # A copy: safetensors refuses tensors that share memory.
        arrays[where] = tensor.detach().cpu().contiguous().clone()
        return list(tensor.shape)
    if get_origin(kind) in (Union, UnionType):
        chosen = [option for option in get_args(kind) if option is not NoneType]
        if len(chosen) == 1:
            return write(chosen[0], value, where, arrays)
        if not _has_fields(type(value)):
            return plain(value, where)
        own: Any = type(value)
        return {own.__name__: write(own, value, f"{where}.{own.__name__}", arrays)}
    if isinstance(value, Mapping):
        inner = get_args(kind)[1]
        return {name: write(inner, item, f"{where}.{name}", arrays) for name, item in value.items()}
    if isinstance(value, Sequence):
        inners = _inner(kind, len(value))
        return [
            write(inner, item, f"{where}.{place}", arrays)
            for place, (inner, item) in enumerate(zip(inners, value, strict=True))
        ]
    return {
        name: write(inner, getattr(value, name), f"{where}.{name}", arrays)
        for name, inner in _fields(kind).items()
    }


def _smallest(tensor: Tensor) -> Tensor:
    """Return the same numbers in the smallest type that holds them."""
    for kind in SMALLER.get(tensor.dtype, ()):
        small = tensor.to(kind)
        if torch.equal(small.to(tensor.dtype), tensor):
            return small
    return tensor


def plain(value: Any, where: str) -> Any:
    """Return any value as JSON has it, with special forms for tuples and numbers that are not finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{key!r} of {where}") for key, item in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [plain(item, where) for item in value]}
    if isinstance(value, (np.ndarray, Tensor)):
        return plain(value.tolist(), where)
    if isinstance(value, (list, range)):
        return [plain(item, where) for item in value]
    raise ValueError(f"{where} is a {type(value).__name__}, which cannot be written to a file: {value!r:.80}")


def from_plain(value: dict[str, Any]) -> Any:
    """Undo the special forms of `plain`: an ``object_hook`` of `json.loads`."""
    if set(value) == {"$float"}:
        return float(value["$float"])
    if set(value) == {"$tuple"}:
        return tuple(value["$tuple"])
    return value


# -- read ------------------------------------------------------------------------------------------


def read(kind: Any, state: Any, where: str, arrays: Arrays) -> Any:
    """Return the value that `write` wrote; the arrays that it has are taken out of `arrays`.

    What is missing, unknown, of another type or beyond a limit is a `ValueError` that names the place.
    """
    if kind == AnyNumber:
        return state if type(state) in (int, float) else _refuse(where, state, "a number")
    whole, (kind, limit) = kind, _bare(kind)
    origin = get_origin(kind)
    if kind is Any:
        return state
    if kind in (bool, int, float) or origin is Literal:
        return _scalar(whole, state, where)
    if kind is str:
        return state if type(state) is str and len(state) in limit else _refuse(where, state, "a text")
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), state, where, arrays)
    if kind is Tensor or origin is np.ndarray:
        return _array(kind, state, where, arrays, limit)
    if origin in (tuple, list):
        if not isinstance(state, (list, tuple)) or len(state) not in limit:
            _refuse(where, state, f"a list of {limit.low} to {limit.high} values")
        inners = _inner(kind, len(state), where)
        made = [
            read(i, s, f"{where}.{k}", arrays) for k, (i, s) in enumerate(zip(inners, state, strict=True))
        ]
        return tuple(made) if origin is tuple else made
    if not isinstance(state, dict) or len(state) not in limit:
        _refuse(where, state, "a mapping")
    if not _has_fields(kind):
        inner = get_args(kind)[1]
        return {name: read(inner, item, f"{where}.{name!s:.40}", arrays) for name, item in state.items()}
    return _built(kind, state, where, arrays)


def _built(kind: Any, state: dict[str, Any], where: str, arrays: Arrays) -> Any:
    known = _fields(kind)
    for name in state:
        if name not in known:
            raise ValueError(f"{where} has an unknown field {name!r:.80}{nearest(str(name)[:80], known)}")
    for name in known:
        if name not in state:
            raise ValueError(f"{where} lacks {name!r}")
    values = {name: read(inner, state[name], f"{where}.{name}", arrays) for name, inner in known.items()}
    try:
        return kind(**values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _scalar(kind: Any, state: Any, where: str) -> Any:
    if isinstance(state, int) and abs(state) > LARGEST:
        _refuse(where, state, f"a number up to {LARGEST}")
    return checked_value(where, state, kind)


def _one_of(kinds: Sequence[Any], state: Any, where: str, arrays: Arrays) -> Any:
    if state is None and NoneType in kinds:
        return None
    options = [kind for kind in kinds if kind is not NoneType]
    if len(options) == 1:
        return read(options[0], state, where, arrays)
    named = {kind.__name__: kind for kind in options if _has_fields(kind)}
    if named and isinstance(state, dict) and len(state) == 1 and next(iter(state)) in named:
        ((name, inner),) = state.items()
        return read(named[name], inner, f"{where}.{name}", arrays)
    for kind in options:
        if type(state) is _bare(kind)[0]:
            return read(kind, state, where, arrays)
    names = [*named, *(_bare(kind)[0].__name__ for kind in options if not _has_fields(kind))]
    return _refuse(where, state, f"one of {', '.join(names)}")


def _array(kind: Any, state: Any, where: str, arrays: Arrays, limit: Items) -> Any:
    tensor = arrays.pop(where, None)
    if tensor is None or state != list(tensor.shape):
        return _refuse(where, state, "the shape of a stored array")
    if tensor.numel() not in limit:
        raise ValueError(f"{where} has {tensor.numel()} elements, not {limit.low} to {limit.high}")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"{where} holds numbers that are not finite")
    if kind is Tensor:
        return (
            tensor if tensor.is_floating_point() else _refuse(where, tensor.dtype, "floating point numbers")
        )
    wanted = torch.from_numpy(np.empty(0, get_args(get_args(kind)[1])[0])).dtype
    if tensor.dtype not in (wanted, *SMALLER.get(wanted, ())):
        _refuse(where, tensor.dtype, str(wanted))
    return tensor.to(wanted).numpy()


# -- annotations -----------------------------------------------------------------------------------


def _bare(kind: Any) -> tuple[Any, Items]:
    """An annotation without its limits, and how many items it may have."""
    if kind is Distribution:
        return Normal | NIG | Mixture, Items()
    if get_origin(kind) is not Annotated:
        # Since numpy 2.5 `NDArray` is an alias that keeps what it stands for to itself.
        alias = getattr(get_origin(kind), "__value__", None)
        return (kind if alias is None else alias[get_args(kind)]), Items()
    inner, limit = get_args(kind)[:2]
    return _bare(inner)[0], limit if isinstance(limit, Items) else Items()


def _inner(kind: Any, count: int, where: str = "") -> Sequence[Any]:
    """The annotation of each item of a list or a tuple."""
    inners = get_args(kind)
    if get_origin(kind) is tuple and inners[-1] is not Ellipsis:
        if count != len(inners):
            raise ValueError(f"{where} has {count} values, not {len(inners)}")
        return inners
    return [inners[0]] * count


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, (Parametric, Mixture)))


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """The annotation of each argument of a class."""
    if issubclass(kind, Parametric):
        return dict.fromkeys(kind.names, Tensor)
    hints = get_type_hints(kind, include_extras=True)
    if issubclass(kind, Mixture):
        return {"components": Normal | NIG, "weights": Tensor}
    return {field.name: hints[field.name] for field in fields(kind) if not field.name.startswith("_")}


def _refuse(where: str, value: Any, wanted: str) -> Any:
    raise ValueError(f"{where} is {_shown(value)}, not {wanted}")


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of many digits"
    return f"{value!r:.60}"
