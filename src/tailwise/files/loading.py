"""Fitted models read from a file that `tailwise.files.saving` wrote.

Everything is checked before anything is built: the manifest against its schema, and the sizes that it
declares against the shapes of the stored tensors. A file cannot name code to run: types in its skops members
are on exact lists.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as read_tensors
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Distribution, Mixture, Normal
from tailwise.core.label_prior import LabelDensity
from tailwise.core.labels import LabelBins
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds
from tailwise.data.tables.preprocessing import NumericEncoder, TablePreprocessor
from tailwise.files.archive import (
    BASE,
    PREPROCESSING,
    WEIGHTS,
    Key,
    check_header,
    one_line,
    section,
    unpack,
)
from tailwise.files.base_files import base_from_json
from tailwise.files.manifest import check_manifest
from tailwise.files.skops_files import vectorizer_from_bytes
from tailwise.learning.loop import FitResult
from tailwise.methods import available_methods
from tailwise.model.base import CrossFitted, FittedBase, GivenBase, NoBase
from tailwise.model.inputs import Columns, Inputs, PictureInputs, TableInputs, TensorInputs
from tailwise.model.model import Model, Record, ready
from tailwise.networks.backbones import IMAGE_BACKBONES, make_backbone, make_image_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.uncertainty.calibration import Calibration, HeldOut, Labels, Prior
from tailwise.uncertainty.column_groups import ColumnGroups
from tailwise.uncertainty.conformal import ConformalIntervals, OwnIntervals
from tailwise.uncertainty.former_intervals import read_intervals
from tailwise.uncertainty.scaling import NIGScaling, Scaling, VarianceScaling

R = TypeVar("R")
OwnBackbone = nn.Module | Callable[[], nn.Module]

_SCALINGS: dict[str, type[Scaling]] = {"NIGScaling": NIGScaling, "VarianceScaling": VarianceScaling}


def load(
    path: str | Path,
    *,
    into: Callable[..., R],
    backbone: OwnBackbone | None = None,
    key: Key | None = None,
) -> R:
    """Read a file that `save` wrote and return the fitted estimator, on the CPU.

    `into` is the estimator's class. With `key`, a file that was not signed with it is refused. A file that
    is missing, cut short, damaged, changed, of another kind or of a later version is an `OSError` or a
    `ValueError` that says so.
    """
    path = Path(path)
    manifest, members = unpack(path, key)
    own = section(manifest, "backbone", path).get("own")
    if own is not None and backbone is None:
        raise ValueError(
            f"{path} was fitted with a backbone of your own ({own}), and only its weights are saved: pass "
            "one of the same shape as backbone=..."
        )
    if own is None and backbone is not None:
        raise ValueError(f"{path} contains its whole network: leave out backbone=...")
    try:
        return _rebuild(manifest, members, into, backbone)
    except Exception as error:  # a crafted file can provoke any error
        name, reason = section(manifest, "params", path).get("method"), one_line(error)
        if name not in available_methods():
            reason += f"; import the file that registers the method {name!r:.80} first"
        raise ValueError(f"{path} cannot be loaded: {reason}") from error


def _rebuild(
    manifest: Mapping[str, Any],
    members: Mapping[str, bytes],
    into: Callable[..., R],
    backbone: OwnBackbone | None,
) -> R:
    check_manifest(manifest)
    check_header(members[WEIGHTS])
    params = dict(manifest["params"])
    if backbone is not None:
        params["backbone"] = backbone
    estimator = into(**params)
    cast("Any", estimator)._validate_params()
    tensors = read_tensors(members[WEIGHTS])
    preprocessor = None
    if manifest["backbone"].get("own") is None and manifest["backbone"]["name"] not in IMAGE_BACKBONES:
        preprocessor = _preprocessor(manifest, tensors, members.get(PREPROCESSING))
    targets = [
        _target(target, _below(tensors, f"held.{t}."), params) for t, target in enumerate(manifest["targets"])
    ]
    all_bins = [calibrator.bins for calibrator in targets]
    bins = all_bins if manifest["several_targets"] else all_bins[0]
    base = _base(members.get(BASE), len(all_bins), preprocessor)
    base_given = bool(manifest.get("base_given", False))
    in_dim = None
    if preprocessor is not None:
        in_dim = preprocessor.out_dim + (len(all_bins) if base is not None or base_given else 0)
    make = partial(_network, manifest, bins, in_dim, backbone, offset=base is not None or base_given)
    stored = [_stored(tensors, k, old="networks" not in manifest) for k in range(manifest.get("networks", 1))]
    for each in stored:
        if len(each.weights) < manifest["parts"].get("members", 1):
            raise ValueError(f"it declares {manifest['parts']['members']} members, more than it holds")
    if backbone is None:
        with torch.device("meta"):  # sizes without memory
            declared = make()
        for each in stored:
            _check_shapes(declared, each)
    networks = []
    for each in stored:
        network = make()
        _fill(network, each)
        networks.append(network)
    columns = Columns()
    if manifest["n_features_in"] is not None:
        columns.n_features_in_ = int(manifest["n_features_in"])
    if manifest["feature_names_in"] is not None:
        columns.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
    groups = next(
        (c.intervals.column for c in targets if not isinstance(c.intervals, OwnIntervals)), ColumnGroups()
    )
    size = _picture_size(manifest)
    inputs: Inputs = TensorInputs(columns)
    if size is not None:
        inputs = PictureInputs(size, columns)
    elif preprocessor is not None:
        inputs = TableInputs(groups=groups, preprocessor=preprocessor, columns=columns)
    names = manifest["target_names"]
    cast("Any", estimator).model_ = Model(
        inputs,
        GivenBase(len(targets)) if base_given else FittedBase(tuple(base)) if base else NoBase(),
        tuple(ready(network, table=inputs.is_table) for network in networks),
        tuple(targets),
        None if names is None else tuple(names),
        Record(
            tuple(FitResult(**history) for history in manifest["histories"]),
            bool(manifest["held_out"]),
            bool(manifest["unseen"]),
            int(manifest["recalibrated"]),
        ),
        str(params["device"]) if "device" in params else "auto",
    )
    return estimator


def _picture_size(manifest: Mapping[str, Any]) -> tuple[int, int] | None:
    size = manifest.get("picture_size")  # older files have none
    if (size is None) != (manifest["backbone"].get("name") not in IMAGE_BACKBONES):
        raise ValueError("the size of pictures belongs to a network for pictures, and only to that")
    return None if size is None else (size[0], size[1])


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


class _Stored(NamedTuple):
    """The tensors of one network: its weights, and buffers that its state leaves out."""

    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]


def _stored(tensors: Mapping[str, Tensor], k: int, *, old: bool) -> _Stored:
    """Return the tensors of network k; files of version 1 (`old`) hold one network."""
    names = ("model.", "buffer.") if old else (f"network.{k}.", f"buffer.{k}.")
    return _Stored(*(_below(tensors, name) for name in names))


def _check_shapes(declared: Network, stored: _Stored) -> None:
    """Raise an error if the network that a manifest declares has other tensors than those stored."""
    state = declared.state_dict()
    hidden = {name: value for name, value in declared.named_buffers() if name not in state}
    # Buffers that the state leaves out follow from the manifest; older files lack some of them.
    hidden = {name: value for name, value in hidden.items() if name in stored.buffers}
    for wanted, found in ((state, stored.weights), (hidden, stored.buffers)):
        for name in [*wanted, *found]:
            shapes = [tuple(each[name].shape) if name in each else None for each in (wanted, found)]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"the weights are those of another network: {name} is declared as {shapes[0]}, but "
                    f"stored as {shapes[1]}"
                )


def _base(
    data: bytes | None, targets: int, preprocessor: TablePreprocessor | None
) -> list[CrossFitted] | None:
    if data is None:
        return None
    states = json.loads(data)
    if not isinstance(states, list) or len(states) != targets:
        raise ValueError(f"{len(states)} bases for {targets} targets")
    if preprocessor is None:
        raise ValueError("a model for pictures, or with a backbone of your own, has no base")
    bases = [base_from_json(state) for state in states]
    for base in bases:  # a base for other columns is an error here, not at the first prediction
        base.predict(np.zeros((1, len(preprocessor.numeric.center))))
    return bases


def _target(state: Mapping[str, Any], held: Mapping[str, Tensor], params: Mapping[str, Any]) -> Calibration:
    edges = np.asarray(state["bins"]["edges"], np.float64)
    counts = np.asarray(state["bins"]["counts"], np.int64)
    if not _rising(edges) or counts.shape != (edges.size - 1,) or (counts < 0).any():
        raise ValueError("bins need edges in ascending order and one count between each two")
    bins = LabelBins(edges, counts, str(state["bins"]["rule"]))
    factors = dict(state["scaling"])
    scaling = _SCALINGS[factors.pop("kind")](**factors)
    intervals: ConformalIntervals | OwnIntervals = OwnIntervals()
    if state["conformal"] is not None:
        intervals = replace(read_intervals(state["conformal"]), bins=bins)
    edges, density = (np.asarray(state["density"][key], np.float64) for key in ("edges", "density"))
    if not _rising(edges) or density.shape != (edges.size - 1,) or not (density > 0).all():
        raise ValueError("the label density needs ascending edges and a positive value between each two")
    labels = LabelDensity(edges, density)
    known = Labels(
        bins,
        Bounds(**state["bounds"]),
        LabelSupport.from_dict(state["support"]),
        int(params.get("many", 100)),
        int(params.get("few", 20)),
    )
    return Calibration(
        known,
        scaling,
        Prior.emphasized(labels, float(state["emphasis"])),
        intervals,
        _held(
            state["held"],
            held,
            intervals.column if isinstance(intervals, ConformalIntervals) else ColumnGroups(),
        ),
    )


def _rising(edges: NDArray[np.float64]) -> bool:
    return bool(
        edges.ndim == 1 and edges.size > 1 and np.isfinite(edges).all() and (np.diff(edges) > 0).all()
    )


def _held(kind: str, tensors: Mapping[str, Tensor], column: ColumnGroups) -> HeldOut:
    form: type[Normal | NIG] = NIG if "gamma" in tensors else Normal
    prediction: Distribution = form(*(tensors[name].double() for name in form.names))
    if kind == Mixture.__name__:
        prediction = Mixture(prediction, tensors["weights"].double())
    labels = tensors["labels"].double().numpy()
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise ValueError("the held-out predictions are not finite")
    if labels.ndim != 1 or prediction.shape != labels.shape:
        raise ValueError("the held-out predictions do not fit their labels")
    groups = tensors["groups"].long().numpy()
    if groups.shape != labels.shape or ((groups < 0) | (groups > len(column.names))).any():
        raise ValueError("the held-out rows do not fit the groups of their column")
    return HeldOut(prediction, labels, groups)


def _network(
    manifest: Mapping[str, Any],
    bins: LabelBins | Sequence[LabelBins],
    in_dim: int | None,
    backbone: OwnBackbone | None,
    *,
    offset: bool,
) -> Network:
    """Build the network without its weights; the caller's random state does not change."""
    recipe, parts = manifest["backbone"], Method().with_options(**manifest["parts"])
    others = recipe.get("name") in IMAGE_BACKBONES or backbone is not None
    with seeded_weights(0, everything=others):
        if recipe.get("name") in IMAGE_BACKBONES:
            network: nn.Module = make_image_backbone(recipe["name"], **recipe["options"])
        elif backbone is None:
            assert in_dim is not None
            network = make_backbone(recipe["name"], in_dim, **recipe["options"])
        else:
            network = copy.deepcopy(backbone if isinstance(backbone, nn.Module) else backbone())
        # The saved parts, even if the method of that name has changed since.
        model = Network(network, int(recipe["feature_dim"]), bins, parts, offset=offset)
    return model.eval()


def _fill(model: Network, stored: _Stored) -> None:
    buffers = stored.buffers
    try:
        model.load_state_dict(stored.weights)
    except RuntimeError as error:
        raise ValueError(f"the weights are those of another network: {one_line(error)}") from error
    state = model.state_dict()
    hidden = {name: value for name, value in model.named_buffers() if name not in state}
    if any(name not in hidden or hidden[name].shape != buffers[name].shape for name in buffers):
        raise ValueError("the buffers are those of another network")
    for name, value in buffers.items():
        hidden[name].copy_(value)


def _preprocessor(
    manifest: Mapping[str, Any], tensors: Mapping[str, Tensor], vectorizer: bytes | None
) -> TablePreprocessor:
    center, scale, missing = (tensors[f"numeric.{name}"] for name in ("center", "scale", "missing"))
    sound = center.dim() == 1 and center.shape == scale.shape and missing.dim() == 1
    sound = sound and center.dtype == scale.dtype == torch.float64 and missing.dtype == torch.int64
    sound = sound and bool((center.isfinite() & scale.isfinite() & (scale > 0)).all())
    if not sound or bool(((missing < 0) | (missing >= len(center))).any()):
        raise ValueError("the numeric encoder is damaged")
    preprocessor = TablePreprocessor()
    preprocessor.columns = manifest["columns"]
    preprocessor.numeric = NumericEncoder(center.clone(), scale.clone(), missing.clone())
    if vectorizer is not None:
        preprocessor.vectorizer = vectorizer_from_bytes(vectorizer)
    return preprocessor
