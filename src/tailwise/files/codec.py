"""Dataclasses as a line of JSON and safetensors, and back; no pickle.

A value is written by what it is: a class as its name and its arguments, an array as its shape, with the
numbers beside the JSON under the name of their place. It is read by its annotation, which may have limits
(`tailwise.options`): another type, a value beyond them, a field that is missing or unknown, and what the
class itself refuses are errors. Only classes that annotations name are built.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from tailwise.distributions.members import NIG, Distribution, Mixture, Normal, Parametric
from tailwise.options import AnyNumber, Items, checked_value
from tailwise.tables.encode import NumericEncoder

Arrays = dict[str, Tensor]
LARGEST = 1 << 53
"""Whole numbers beyond this are refused."""
MAX_JSON = 1 << 20
"""Most values of the JSON, and of the table of tensors. Each takes up to 70 bytes of memory."""
SMALLER = {
    torch.float64: (torch.float16, torch.float32),
    torch.int64: (torch.int8, torch.int16, torch.int32),
}
"""Types in which the arrays of a type are stored where that loses nothing."""


# -- write -----------------------------------------------------------------------------------------


def encoded(value: Any, tensors: Arrays) -> bytes:
    """Return a value, and tensors beside it, as bytes. The same ones give the same bytes."""
    arrays: Arrays = {}
    text = json.dumps(_described(value, "model", arrays)).encode()
    # Copies: safetensors refuses tensors that share memory.
    copies = {name: tensor.contiguous().clone() for name, tensor in {**tensors, **arrays}.items()}
    return text + b"\n" + tensors_to_bytes(copies)


def _described(value: Any, where: str, arrays: Arrays) -> Any:
    """Return a value as JSON has it; its arrays go into `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.ndarray, Tensor)):
        tensor = torch.as_tensor(np.array(value)) if isinstance(value, np.ndarray) else value.detach().cpu()
        arrays[where] = smallest(tensor, SMALLER.get(tensor.dtype, ()))
        return list(value.shape)
    if isinstance(value, Mapping):
        return {str(name): _described(item, f"{where}.{name}", arrays) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_described(item, f"{where}.{place}", arrays) for place, item in enumerate(value)]
    if not _has_fields(type(value)):
        raise ValueError(f"{where} is a {type(value).__name__}, which cannot be written to a file")
    own: Any = type(value)
    parts = {name: getattr(value, name) for name in _fields(own)}
    return {"class": own.__name__, **_described(parts, where, arrays)}


def smallest(tensor: Tensor, kinds: Sequence[torch.dtype]) -> Tensor:
    """Return the same numbers in the first type that holds them."""
    for kind in kinds:
        small = tensor.to(kind)
        if torch.equal(small.to(tensor.dtype), tensor):
            return small
    return tensor


# -- read ------------------------------------------------------------------------------------------


def decoded(kind: Any, content: bytes) -> tuple[Any, Arrays]:
    """Return the value of a kind that `encoded` wrote, and the tensors beside it.

    What is missing, unknown, of another type or beyond a limit is a `ValueError` that names the place.
    """
    text, _, weights = content.partition(b"\n")
    header = weights[8 : 8 + int.from_bytes(weights[:8], "little")]
    for data in (text, header):
        if sum(map(data.count, (b",", b"[", b"{"))) >= MAX_JSON:
            raise ValueError(f"it has more than {MAX_JSON} values")
    described, arrays = json.loads(text), dict(read_tensors(weights))
    return _read(kind, described, "model", arrays), arrays


def _read(kind: Any, state: Any, where: str, arrays: Arrays) -> Any:
    """Return the value that is described; the arrays that it has are taken out of `arrays`."""
    if kind == AnyNumber:
        return state if type(state) in (int, float) else _refuse(where, state, "a number")
    (whole, (kind, limit)), origin = (kind, _bare(kind)), get_origin(_bare(kind)[0])
    if kind is Any:
        return state
    if origin in (Union, UnionType) or _has_fields(kind):
        return _one_of(get_args(kind) or (kind,), state, where, arrays)
    if kind in (bool, int, float) or origin is Literal:
        if isinstance(state, int) and abs(state) > LARGEST:
            _refuse(where, "a number of many digits", f"a number up to {LARGEST}")
        return checked_value(where, state, whole)
    if kind is str:
        return state if type(state) is str and len(state) in limit else _refuse(where, state, "a text")
    if kind is Tensor or origin is np.ndarray:
        return _array(kind, state, where, arrays, limit)
    if origin is dict or origin is Mapping:
        if not isinstance(state, dict):
            _refuse(where, state, "a mapping")
        inner = get_args(kind)[1]
        return {name: _read(inner, item, f"{where}.{name!s:.40}", arrays) for name, item in state.items()}
    inners = get_args(kind)
    if not isinstance(state, list) or len(state) not in limit:
        _refuse(where, state, f"a list of {limit.low} to {limit.high} values")
    if origin is list or inners[-1] is Ellipsis:
        inners = inners[:1] * len(state)
    if len(state) != len(inners):
        raise ValueError(f"{where} has {len(state)} values, not {len(inners)}")
    return origin(
        _read(k, s, f"{where}.{n}", arrays) for n, (k, s) in enumerate(zip(inners, state, strict=True))
    )


def _one_of(kinds: Sequence[Any], state: Any, where: str, arrays: Arrays) -> Any:
    """Return None, or a value of the one kind that fits."""
    if state is None and NoneType in kinds:
        return None
    classes = {kind.__name__: kind for kind in kinds if _has_fields(kind)}
    if isinstance(state, dict) and (own := classes.get(str(state.get("class")))) is not None:
        return _built(own, state, where, arrays)
    others = [kind for kind in kinds if kind is not NoneType and not _has_fields(kind)]
    fitting = [kind for kind in others if len(others) == 1 or type(state) is _bare(kind)[0]]
    if not fitting:
        names = [*classes, *(_bare(kind)[0].__name__ for kind in others)]
        _refuse(where, state, f"one of {', '.join(names)}")
    return _read(fitting[0], state, where, arrays)


def _built(kind: Any, state: dict[str, Any], where: str, arrays: Arrays) -> Any:
    known = _fields(kind)
    for name in sorted(state.keys() ^ {"class", *known}):
        problem = "lacks" if name in known else "has an unknown field"
        raise ValueError(f"{where} {problem} {name!r:.80}")
    values = {name: _read(inner, state[name], f"{where}.{name}", arrays) for name, inner in known.items()}
    try:
        return kind(**values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _array(kind: Any, state: Any, where: str, arrays: Arrays, limit: Items) -> Any:
    tensor = arrays.pop(where, torch.empty(0, 0))
    if state != list(tensor.shape) or tensor.numel() not in limit:
        _refuse(where, state, f"the shape of a stored array of {limit.low} to {limit.high} elements")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ValueError(f"{where} holds numbers that are not finite")
    dtype = np.float64 if kind is Tensor else get_args(get_args(kind)[1])[0]
    wanted = torch.from_numpy(np.empty(0, dtype)).dtype
    if tensor.dtype not in (wanted, *SMALLER.get(wanted, ())):
        _refuse(where, tensor.dtype, str(wanted))
    return tensor.to(wanted) if kind is Tensor else tensor.to(wanted).numpy()


def _refuse(where: str, value: Any, wanted: str) -> Any:
    raise ValueError(f"{where} is {value!r:.60}, not {wanted}")


# -- annotations -----------------------------------------------------------------------------------


def _bare(kind: Any) -> tuple[Any, Items]:
    """Return an annotation without its limits, and how many items it may have."""
    if kind is Distribution:
        return Normal | NIG | Mixture, Items()
    if get_origin(kind) is not Annotated:
        # Since numpy 2.5 `NDArray` is an alias that keeps what it stands for to itself.
        alias = getattr(get_origin(kind), "__value__", None)
        return (kind if alias is None else alias[get_args(kind)]), Items()
    inner, limit = get_args(kind)[:2]
    return _bare(inner)[0], limit if isinstance(limit, Items) else Items()


def _has_fields(kind: Any) -> bool:
    classes = (Parametric, Mixture, NumericEncoder)
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, classes))


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """Return the annotation of each argument of a class."""
    if issubclass(kind, Parametric):
        return dict.fromkeys(kind.names, Tensor)
    if issubclass(kind, Mixture):
        return {"components": Normal | NIG, "weights": Tensor}
    hints = get_type_hints(kind.__init__, include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return" and not name.startswith("_")}
