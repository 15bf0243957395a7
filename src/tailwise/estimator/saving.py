"""Fitted models as one file, without pickle; `tailwise.estimator.archive` says what is in it.

Everything is checked before anything is built, and nothing in a file can name code to run: types in
the skops member come from a list of skrub's, pandas' and polars' own.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Distribution, Mixture, Normal
from tailwise.core.label_prior import LabelDensity
from tailwise.core.label_prior import emphasis as tilt_to_rare
from tailwise.core.labels import LabelBins
from tailwise.data.tables.preprocessing import NumericEncoder, TablePreprocessor
from tailwise.estimator.archive import (
    BASE,
    PREPROCESSING,
    WEIGHTS,
    one_line,
    pack,
    section,
    unpack,
)
from tailwise.estimator.base_files import base_from_json, base_to_json
from tailwise.estimator.bases import CrossFitted
from tailwise.estimator.skops_files import from_skops, is_own, to_skops, unknown_types
from tailwise.learning.loop import FitResult
from tailwise.methods import build_model
from tailwise.networks.backbones import BACKBONES, PiecewiseLinearEncoding, make_backbone
from tailwise.networks.ensembles import Ensemble
from tailwise.networks.parts import Method
from tailwise.networks.trainable import Trainable
from tailwise.uncertainty.calibrator import Calibrator, HeldOut
from tailwise.uncertainty.conformal import ConformalIntervals
from tailwise.uncertainty.scaling import NIGScaling, Scaling, VarianceScaling

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor

R = TypeVar("R")
MAX_NETWORKS = 1000
"""More networks than this in a file are refused."""
OwnBackbone = nn.Module | Callable[[], nn.Module]

_SCALINGS: dict[str, type[Scaling]] = {"NIGScaling": NIGScaling, "VarianceScaling": VarianceScaling}
_PLAIN_TYPES = frozenset(
    {
        "numpy.dtype",
        "pandas.BooleanDtype",
        "pandas.CategoricalDtype",
        "pandas.DatetimeTZDtype",
        "pandas.StringDtype",
        "datetime.timedelta",
        "datetime.timezone",
        "zoneinfo.ZoneInfo",
    }
)
_PLAIN_PATTERN = re.compile(r"pandas\.U?Int(8|16|32|64)Dtype|pandas\.Float(32|64)Dtype")
_POLARS_PATTERN = re.compile(r"polars\.datatypes\.classes\.[A-Z]\w*")
_SKRUB_PATTERN = re.compile(
    r"skrub\._[a-z_]+\.[A-Z]\w*"  # transformers
    r"|skrub\.selectors\._[a-z_]+\.\w+"  # which columns a transformer is for, and how to tell
    r"|skrub\._dataframe\._common\.is_\w+"
    r"|skrub\._table_vectorizer\._created_by_predicate"
)


# -- save ------------------------------------------------------------------------------------------


def save(
    estimator: TailRegressor, path: str | Path, *, default_backbone: str, overwrite: bool = False
) -> Path:
    """Write a fitted `TailRegressor` to one file and return its path; `load` gives the same predictions.

    `default_backbone` is what ``backbone="auto"`` stands for. A file that exists is an error unless
    `overwrite`. Of a backbone of one's own only the weights are written. A `random_state` that is a
    generator, of use to fit again only, becomes None.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'model.tailwise'}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: pass overwrite=True to replace it, or name another file")
    members = {WEIGHTS: tensors_to_bytes(_tensors(estimator))}
    preprocessor = estimator.preprocessor_
    if preprocessor is not None and preprocessor.vectorizer is not None:
        members[PREPROCESSING] = _vectorizer_to_bytes(preprocessor.vectorizer)
    if estimator.base_ is not None:
        members[BASE] = json.dumps([base_to_json(base) for base in estimator.base_]).encode()
    pack(path, _description(estimator, default_backbone), members)
    return path


def _description(estimator: TailRegressor, default_backbone: str) -> dict[str, Any]:
    """What the manifest says, but for the checksums."""
    params = estimator.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    if not isinstance(params["base"], (str, type(None))):
        params["base"] = None  # a regressor of the user's own is of use to fit again only
    own = not isinstance(params["backbone"], str)
    first = estimator.networks_[0]
    network = _backbone(first)
    if own:
        params["backbone"] = None
    preprocessor = estimator.preprocessor_
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "params": params,
        "parts": first.method,
        "networks": len(estimator.networks_),
        "base_given": estimator.base_given_,
        "backbone": {
            **(
                {"own": type(network).__name__}
                if own
                else _recipe(_name(params["backbone"], default_backbone), network)
            ),
            "feature_dim": int(estimator.feature_dim or cast("int", network.feature_dim)),
        },
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "columns": None if preprocessor is None else preprocessor.columns,
        "column_kinds": _column_kinds(preprocessor),
        "several_targets": isinstance(estimator.bins_, list),
        "target_names": estimator.target_names_,
        "targets": [_target_to_dict(calibrator) for calibrator in estimator.calibrators_],
        "held_out": estimator.held_out_,
        "unseen": estimator.unseen_,
        "histories": [asdict(history) for history in estimator.histories_],
    }


def _target_to_dict(calibrator: Calibrator) -> dict[str, Any]:
    bins, density, held = calibrator.bins, calibrator.density, calibrator.held
    return {
        "bins": {"edges": bins.edges, "counts": bins.counts, "rule": bins.rule},
        "scaling": None
        if calibrator.scaling is None
        else {"kind": type(calibrator.scaling).__name__, **asdict(calibrator.scaling)},
        "conformal": None if calibrator.conformal is None else calibrator.conformal.to_dict(),
        "density": None if density is None else asdict(density),
        "emphasis": calibrator.emphasis,
        "held": None if held is None else type(held.prediction).__name__,
    }


def _name(backbone: str, default: str) -> str:
    return default if backbone == "auto" else backbone


def _backbone(model: Trainable) -> nn.Module:
    network = model.networks[0] if isinstance(model, Ensemble) else model
    return cast("nn.Module", network.backbone)


def _recipe(name: str, network: nn.Module) -> dict[str, Any]:
    """What `make_backbone` needs to build the network again, today's defaults included."""
    signature = inspect.signature(BACKBONES[name]).parameters
    options = {k: p.default for k, p in signature.items() if k not in ("in_dim", "rows")}
    for part in network.modules():
        if isinstance(part, PiecewiseLinearEncoding):
            options["edges"] = part.edges
    return {"name": name, "options": options}


def _column_kinds(preprocessor: TablePreprocessor | None) -> dict[str, str] | None:
    """What each column of a table was taken for, for whoever reads the manifest."""
    if preprocessor is None or preprocessor.columns is None:
        return None
    kinds = getattr(preprocessor.vectorizer, "column_to_kind_", {})
    fallback = "numeric" if preprocessor.vectorizer is None else "dropped"
    return {name: str(kinds.get(name, fallback)) for name in preprocessor.columns}


def _tensors(estimator: TailRegressor) -> dict[str, Tensor]:
    """Every tensor of a fitted model by name; buffers that its state leaves out as well."""
    found: dict[str, Tensor] = {}
    for k, network in enumerate(estimator.networks_):
        state = network.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"{name} of the backbone is a {type(value).__name__}, and only tensors are written: "
                    "return a tensor from get_extra_state"
                )
        found |= {f"network.{k}.{name}": value for name, value in state.items()}
        hidden = {name: value for name, value in network.named_buffers() if name not in state}
        found |= {f"buffer.{k}.{name}": value for name, value in hidden.items()}
    if estimator.preprocessor_ is not None:
        found |= {f"numeric.{name}": value for name, value in estimator.preprocessor_.numeric.named_buffers()}
    for t, calibrator in enumerate(estimator.calibrators_):
        if calibrator.held is not None:
            found |= {f"held.{t}.{k}": value for k, value in _held_to_tensors(calibrator.held).items()}
    # Copies, as safetensors refuses tensors that share memory.
    return {name: value.detach().cpu().contiguous().clone() for name, value in found.items()}


def _held_to_tensors(held: HeldOut) -> dict[str, Tensor]:
    """Labels and parameters of held-out predictions; a mixture has those of its components as well."""
    prediction, found = held.prediction, {"labels": torch.from_numpy(held.labels)}
    if isinstance(prediction, Mixture):
        found["weights"] = prediction.weights
        prediction = prediction.components
    assert isinstance(prediction, (Normal, NIG))
    return found | dict(zip(prediction.names, prediction.parameters, strict=True))


# -- load ------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    *,
    into: Callable[..., R],
    backbone: OwnBackbone | None = None,
) -> R:
    """Read a file that `save` wrote and return the fitted estimator, on the CPU.

    `into` is the estimator's class. A file that is missing, cut short, damaged, changed, of another
    kind or of a later version is an `OSError` or a `ValueError` that says so.
    """
    path = Path(path)
    manifest, members = unpack(path)
    own = section(manifest, "backbone", path).get("own")
    if own is not None and backbone is None:
        raise ValueError(
            f"{path} was fitted with a backbone of your own ({own}), of which only the weights are "
            "saved: pass one of the same shape as backbone=..."
        )
    if own is None and backbone is not None:
        raise ValueError(f"{path} holds its whole network: leave out backbone=...")
    try:
        return _rebuild(manifest, members, into, backbone)
    except Exception as error:  # whatever a crafted file provokes, the caller is told one thing
        reason = one_line(error)
        raise ValueError(f"{path} cannot be loaded: {reason}") from error


def _rebuild(
    manifest: Mapping[str, Any],
    members: Mapping[str, bytes],
    into: Callable[..., R],
    backbone: OwnBackbone | None,
) -> R:
    tensors = read_tensors(members[WEIGHTS])
    preprocessor = None
    if manifest["backbone"].get("own") is None:
        preprocessor = _preprocessor(manifest, tensors, members.get(PREPROCESSING))
    targets = [_target(target, _below(tensors, f"held.{t}.")) for t, target in enumerate(manifest["targets"])]
    all_bins = [calibrator.bins for calibrator in targets]
    several = bool(manifest["several_targets"])
    if not all_bins or (len(all_bins) > 1 and not several):
        raise ValueError(f"{len(all_bins)} targets do not fit the model")
    bins = all_bins if several else all_bins[0]
    base = _base(members.get(BASE), len(all_bins))
    base_given = bool(manifest.get("base_given", False))
    in_dim = None
    if preprocessor is not None:
        in_dim = preprocessor.out_dim + (len(all_bins) if base is not None or base_given else 0)
    networks = []
    for k in range(_network_count(manifest)):
        network = _network(manifest, bins, in_dim, backbone, offset=base is not None or base_given)
        old = "networks" not in manifest  # files of version 1 hold one network
        _fill(
            network,
            _below(tensors, "model." if old else f"network.{k}."),
            _below(tensors, "buffer." if old else f"buffer.{k}."),
        )
        networks.append(network)
    params = dict(manifest["params"])
    if backbone is not None:
        params["backbone"] = backbone
    estimator = into(**params)
    names = manifest.get("target_names")  # files written before there were any have none
    if names is not None and len(names) != len(all_bins):
        raise ValueError(f"{len(names)} names for {len(all_bins)} targets")
    fitted: dict[str, Any] = {
        "bins_": bins,
        "target_names_": names,
        "n_targets_": len(all_bins),
        "preprocessor_": preprocessor,
        "base_": base,
        "base_given_": base_given,
        "networks_": networks,
        "histories_": [
            FitResult(**history) for history in manifest.get("histories", [manifest.get("history")])
        ],
        "held_out_": bool(manifest["held_out"]),
        "unseen_": bool(manifest.get("unseen", manifest["held_out"])),  # older files do not say
        "calibrators_": targets,
    }
    if manifest["n_features_in"] is not None:
        fitted["n_features_in_"] = int(manifest["n_features_in"])
    if manifest["feature_names_in"] is not None:
        fitted["feature_names_in_"] = np.array(manifest["feature_names_in"], dtype=object)
    vars(estimator).update(fitted)
    return estimator


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _network_count(manifest: Mapping[str, Any]) -> int:
    count = manifest.get("networks", 1)
    if type(count) is not int or not 1 <= count <= MAX_NETWORKS:
        raise ValueError(f"{count!r} networks, not 1 to {MAX_NETWORKS}")
    return count


def _base(data: bytes | None, targets: int) -> list[CrossFitted] | None:
    if data is None:
        return None
    bases = [base_from_json(state) for state in json.loads(data)]
    if len(bases) != targets:
        raise ValueError(f"{len(bases)} bases for {targets} targets")
    return bases


def _target(state: Mapping[str, Any], held: Mapping[str, Tensor]) -> Calibrator:
    edges = np.asarray(state["bins"]["edges"], np.float64)
    counts = np.asarray(state["bins"]["counts"], np.int64)
    if not _rising(edges) or counts.shape != (edges.size - 1,) or (counts < 0).any():
        raise ValueError("bins need edges in ascending order and one count between each two")
    bins = LabelBins(edges, counts, str(state["bins"]["rule"]))
    scaling: Scaling | None = None
    if state["scaling"] is not None:
        factors = dict(state["scaling"])
        scaling = _SCALINGS[factors.pop("kind")](**factors)
    conformal = None
    if state["conformal"] is not None:
        conformal = replace(ConformalIntervals.from_dict(state["conformal"]), bins=bins)
    if state.get("density") is None:  # files of version 1 have no label prior
        return Calibrator(bins, scaling, conformal)
    edges, density = (np.asarray(state["density"][key], np.float64) for key in ("edges", "density"))
    if not _rising(edges) or density.shape != (edges.size - 1,) or not (density > 0).all():
        raise ValueError("the label density needs ascending edges and a positive value between each two")
    labels = LabelDensity(edges, density)
    emphasis = float(state["emphasis"])
    if not 0 <= emphasis <= 1:
        raise ValueError(f"the emphasis is {emphasis}, not between 0 and 1")
    tilt = tilt_to_rare(labels, emphasis)
    return Calibrator(
        bins,
        scaling,
        conformal,
        labels,
        emphasis,
        None if tilt.is_identity else tilt,
        _held(state["held"], held),
    )


def _rising(edges: NDArray[np.float64]) -> bool:
    return bool(
        edges.ndim == 1 and edges.size > 1 and np.isfinite(edges).all() and (np.diff(edges) > 0).all()
    )


def _held(kind: str | None, tensors: Mapping[str, Tensor]) -> HeldOut | None:
    if kind is None:
        return None
    form: type[Normal | NIG] = NIG if "gamma" in tensors else Normal
    prediction: Distribution = form(*(tensors[name] for name in form.names))
    if kind == Mixture.__name__:
        prediction = Mixture(prediction, tensors["weights"])
    labels = tensors["labels"].double().numpy()
    if labels.ndim != 1 or prediction.shape != labels.shape:
        raise ValueError("the held-out predictions do not fit their labels")
    return HeldOut(prediction, labels)


def _network(
    manifest: Mapping[str, Any],
    bins: LabelBins | Sequence[LabelBins],
    in_dim: int | None,
    backbone: OwnBackbone | None,
    *,
    offset: bool,
) -> Trainable:
    """The network with weights still to be filled in; the caller's random state is left alone."""
    recipe, parts = manifest["backbone"], Method().with_options(**manifest["parts"])
    with torch.random.fork_rng(devices=[]):
        if backbone is None:
            assert in_dim is not None
            network: nn.Module = make_backbone(recipe["name"], in_dim, **recipe["options"])
        else:
            network = copy.deepcopy(backbone if isinstance(backbone, nn.Module) else backbone())
        # Vanilla is the row without parts of its own: what is built are the saved parts, whatever
        # the method of that name consists of by now.
        model = build_model(
            "vanilla", network, int(recipe["feature_dim"]), bins, offset=offset, **manifest["parts"]
        )
    if model.method != parts:
        raise ValueError("the parts of the method are not those that were saved")
    return model.eval()


def _fill(model: Trainable, weights: dict[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"the weights are those of another network: {one_line(error)}") from error
    state = model.state_dict()
    hidden = {name: value for name, value in model.named_buffers() if name not in state}
    if hidden.keys() != buffers.keys() or any(hidden[k].shape != buffers[k].shape for k in buffers):
        raise ValueError("the buffers are those of another network")
    for name, value in hidden.items():
        value.copy_(buffers[name])


def _preprocessor(
    manifest: Mapping[str, Any], tensors: Mapping[str, Tensor], vectorizer: bytes | None
) -> TablePreprocessor:
    center, scale, missing = (tensors[f"numeric.{name}"] for name in ("center", "scale", "missing"))
    sound = center.dim() == 1 and center.shape == scale.shape and missing.dim() == 1
    sound = sound and center.dtype == scale.dtype == torch.float64 and missing.dtype == torch.int64
    if not sound or bool(((missing < 0) | (missing >= len(center))).any()):
        raise ValueError("the numeric encoder is damaged")
    preprocessor = TablePreprocessor()
    preprocessor.columns = manifest["columns"]
    preprocessor.numeric = NumericEncoder(center.clone(), scale.clone(), missing.clone())
    if vectorizer is not None:
        preprocessor.vectorizer = _vectorizer_from_bytes(vectorizer)
    return preprocessor


# -- skrub's part ----------------------------------------------------------------------------------


def _vectorizer_to_bytes(vectorizer: Any) -> bytes:
    data = to_skops(vectorizer)
    for name in unknown_types(data, _is_known_type):
        raise ValueError(f"the preprocessing holds {name:.80}, which cannot be saved without pickle")
    return data


def _vectorizer_from_bytes(data: bytes) -> Any:
    from skrub import TableVectorizer

    vectorizer = from_skops(data, PREPROCESSING, _is_known_type)
    if type(vectorizer) is not TableVectorizer:
        raise ValueError(f"{PREPROCESSING} holds a {type(vectorizer).__name__}, not a TableVectorizer")
    return vectorizer


def _is_known_type(name: str) -> bool:
    if name in _PLAIN_TYPES or _PLAIN_PATTERN.fullmatch(name):
        return True
    if _SKRUB_PATTERN.fullmatch(name):
        return is_own(name, "skrub")
    return bool(_POLARS_PATTERN.fullmatch(name)) and is_own(name, "polars")
