"""Options that commands share, and how their text is read."""

from __future__ import annotations

import csv
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, BadParameter, Option

# -- shared options ------------------------------------------------------------------------------


def _load_plugins(files: list[str] | None) -> list[str] | None:
    """Register the methods of files, before anything names one."""
    for file in files or []:
        from tailwise.methods import load_plugin

        try:
            load_plugin(file)
        except ValueError as error:
            raise BadParameter(str(error)) from None
    return files


def _check_coverage(share: float | None) -> float | None:
    if share is not None and not 0.01 <= share <= 0.999:
        raise BadParameter(f"{share:g} is not a share from 0.01 to 0.999, such as 0.9 for 90%")
    return share


Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only results and errors.")]
Json = Annotated[bool, Option("--json", help="Print results as JSON.")]
Force = Annotated[bool, Option("--force", help="Overwrite existing output files.")]
Seed = Annotated[int, Option(metavar="N", min=0, help="The same seed gives the same numbers.")]
Epochs = Annotated[
    int | None, Option(metavar="N", min=1, help="Maximum number of epochs; set from the data by default.")
]
Table = Annotated[
    str, Argument(metavar="FILE", help="CSV (any delimiter, plain or gzip) or Parquet; - is standard input.")
]
TableOut = Annotated[
    str,
    Option(
        "--out", "-o", metavar="FILE", help="CSV (.csv, .csv.gz), .tsv or .parquet; - is standard output."
    ),
]
Model = Annotated[Path, Argument(metavar="MODEL", help="Model file written by `tailwise fit`.")]
ModelOut = Annotated[Path, Option("--out", "-o", metavar="MODEL", help="Model file to write.")]
Report = Annotated[Path | None, Option("--report", metavar="PAGE", help="HTML page to write.")]
Sign = Annotated[
    Path | None, Option("--sign", metavar="KEYFILE", help="File with a secret key to sign the model with.")
]
Target = Annotated[list[str], Option("--target", "-t", metavar="COLUMN", help="Column to predict.")]
Targets = Annotated[
    list[str], Option("--target", "-t", metavar="COLUMN", help="Column to predict; repeatable.")
]
TrueLabels = Annotated[
    list[str] | None,
    Option("--target", "-t", metavar="COLUMN", help="Column of true labels; the model's target by default."),
]
Drop = Annotated[
    str,
    Option(
        metavar="COLUMNS", help="Columns to leave out. Comma-separated; quote names that contain a comma."
    ),
]
Coverage = Annotated[
    float,
    Option(metavar="SHARE", callback=_check_coverage, help="Share of labels that intervals should contain."),
]
Rare = Annotated[
    float | None,
    Option(metavar="SHARE", callback=_check_coverage, help="Share of the rarest labels to contain too."),
]
Emphasis = Annotated[
    str,
    Option(
        metavar="NUMBER", help="Attention to rare labels from 0 (as in training) to 1 (all alike), or auto."
    ),
]
Stream = Annotated[
    bool, Option("--stream", help="Read Parquet in parts, as folders and very large files always are.")
]
# Eager: what other options name may be registered by a plugin.
Plugin = Annotated[
    list[str] | None,
    Option(
        metavar="FILE",
        is_eager=True,
        callback=_load_plugins,
        help="Python file that registers methods of your own. Repeatable.",
    ),
]


@dataclass(frozen=True)
class Shared:
    """Options of every command that reads a table and prints results."""

    encoding: Annotated[
        str | None,
        Option(metavar="NAME", help="Encoding of the tables, such as koi8-r; UTF-8 or western by default."),
    ] = None
    force: Force = False
    quiet: Quiet = False
    as_json: Json = False


@dataclass(frozen=True)
class PictureOptions:
    """Options of commands that read pictures."""

    images: Annotated[
        str | None,
        Option(metavar="FOLDER", help="Folder or zip archive of pictures, which are then the only input."),
    ] = None
    paths: Annotated[
        str, Option("--paths", metavar="COLUMN", help="With --images, column of paths inside FOLDER.")
    ] = "path"
    skip_broken: Annotated[
        bool, Option("--skip-broken", help="Leave out missing and broken pictures instead of stopping.")
    ] = False


@dataclass(frozen=True)
class TrainingPictures(PictureOptions):
    """Options of commands that train on pictures."""

    image_size: Annotated[
        int, Option(metavar="N", min=8, help="With --images, height and width to which they are resized.")
    ] = 224

    augment: Annotated[
        str, Option(metavar="NAME", help="With --images, random changes: crop-flip, strong or none.")
    ] = "crop-flip"

    def parameters(self, backbone: str = "auto") -> dict[str, Any]:
        """Return the parameters of `TailRegressor` for pictures, none without --images."""
        if self.images is None:
            return {}
        from tailwise.lookup import check_name
        from tailwise.networks.images import IMAGE_BACKBONES

        name = "resnet18" if backbone == "auto" else backbone
        check_name("backbone for pictures", name, IMAGE_BACKBONES)
        augment = None if self.augment == "none" else self.augment
        return {"backbone": name, "image_size": self.image_size, "augment": augment}


@dataclass(frozen=True)
class DialOptions:
    """Options that set the dial of a fitted model for one command."""

    emphasis: Emphasis = "auto"
    label_prior: Annotated[
        str | None, Option(metavar="FILE", help="Labels expected in use: a table with a column of them.")
    ] = None


@dataclass(frozen=True)
class Trust:
    """Options of commands that load a model, which may need code of the user or a signature."""

    verify: Annotated[
        Path | None, Option(metavar="KEYFILE", help="Refuse a model that was not signed with this key.")
    ] = None
    plugin: Plugin = None


# -- options of fit -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FitOptions:
    """What `fit` writes, which rows and columns it uses for what, and how it trains."""

    out: ModelOut
    report: Report = None
    no_baseline: Annotated[bool, Option("--no-baseline", help="Train no boosted trees to compare with.")] = (
        False
    )
    coverage: Coverage = 0.9
    sign: Sign = None
    test: Annotated[
        str | None, Option(metavar="FILE", help="Table to measure on; part of FILE by default.")
    ] = None
    test_share: Annotated[
        float, Option(metavar="SHARE", min=0.0, max=0.9, help="Share of FILE to measure on; 0 for none.")
    ] = 0.2
    drop: Drop = ""
    weight: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of row weights for training; it is not an input.")
    ] = None
    groups: Annotated[
        str | None,
        Option(
            metavar="COLUMN", help="Rows with equal values stay on one side of every split; not an input."
        ),
    ] = None
    time_column: Annotated[
        str | None,
        Option(
            "--time", metavar="COLUMN", help="Hold out the latest rows by this column; it stays an input."
        ),
    ] = None
    method: Annotated[str, Option(metavar="NAME", help="Method; see `tailwise methods`.")] = "vir-dial"
    option: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Setting of the method, such as evidence.weight=0.01; repeatable."),
    ] = None
    base: Annotated[
        str, Option(metavar="NAME", help="Model that the network starts from, such as lightgbm, or none.")
    ] = "auto"
    folds: Annotated[
        int | None, Option(metavar="N", min=1, help="Number of networks, each with its own held-out rows.")
    ] = None
    emphasis: Emphasis = "auto"
    target_transform: Annotated[
        str, Option(metavar="NAME", help="Fit to transformed labels: log, yeo-johnson, none or auto.")
    ] = "auto"
    backbone: Annotated[str, Option(metavar="NAME", help="Network, such as mlp, residual or tabm.")] = "auto"
    bins: Annotated[
        str | None, Option(metavar="BINS", help="Number of label bins, or edges such as 0,1,10,100.")
    ] = None
    bounds: Annotated[
        str | None,
        Option(
            metavar="LOW,HIGH", help="Smallest and largest possible label, such as 0, or 0,100; or observed."
        ),
    ] = None
    conformal_by: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Fit intervals for each value of this column, or bins of its numbers."),
    ] = None
    epochs: Epochs = None
    device: Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda or mps.")] = "auto"
    seed: Seed = 0
    start_from: Annotated[
        Path | None, Option(metavar="MODEL", help="Model of the same method and columns to train further.")
    ] = None
    plugin: Plugin = None
    stream: Stream = False
    ray: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Train on a Ray cluster: host:port, auto, or local to start one."),
    ] = None
    workers: Annotated[
        int | None, Option(metavar="N", min=1, help="With --ray, number of training processes; 2 by default.")
    ] = None

    def parameters(self, pictures: TrainingPictures, quiet: bool) -> dict[str, Any]:
        """Return the parameters of `TailRegressor`."""
        return {
            "method": self.method,
            "method_options": parse_method_options(self.option or []),
            "base": None if self.base == "none" else self.base,
            "folds": self.folds or "auto",
            "emphasis": parse_emphasis(self.emphasis),
            "target_transform": None if self.target_transform == "none" else self.target_transform,
            "backbone": self.backbone,
            "bins": parse_bins(self.bins),
            "bounds": parse_bounds(self.bounds),
            "conformal_by": self.conformal_by,
            "epochs": self.epochs or "auto",
            "device": self.device,
            "random_state": self.seed,
            "verbose": int(not quiet),
            **pictures.parameters(self.backbone),
        }


# -- reading their text --------------------------------------------------------------------------


def split_names(text: str) -> list[str]:
    """Split comma-separated names and drop repeated ones.

    >>> split_names('a, b, "c, d", a')
    ['a', 'b', 'c, d']
    """
    names = next(csv.reader([text], skipinitialspace=True), [])
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def quoted_name(column: str) -> str:
    """Return a column's name as a user has to type it in a shell for an option that takes several.

    >>> print(quoted_name("a, b"))
    '"a, b"'
    """
    return shlex.quote(f'"{column}"' if "," in column else column)


def only_target(targets: Sequence[str]) -> str:
    """Return the target of a command that takes one; click would silently use the last of several."""
    if len(targets) > 1:
        raise ValueError(f"this command takes one --target, not {' and '.join(map(repr, targets))}")
    return targets[0]


def parse_bins(text: str | None) -> int | list[float] | None:
    """Read the number of label bins, or their edges.

    >>> parse_bins("50"), parse_bins("0,1,10,100")
    (50, [0.0, 1.0, 10.0, 100.0])
    """
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
        whole = int(text) if len(numbers) == 1 else 1
        if whole < 1 or not all(low < high for low, high in pairwise(numbers)):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--bins takes a whole number of bins, or increasing edges such as 0,1,10,100, not {text!r}"
        ) from None
    return numbers if len(numbers) > 1 else whole


def parse_bounds(text: str | None) -> Any:
    """Read bounds of the label: observed, or a low and a high end of which one may be empty.

    >>> parse_bounds("observed"), parse_bounds("0,"), parse_bounds("0,100")
    ('observed', (0.0, None), (0.0, 100.0))
    """
    if text is None or text == "observed":
        return text
    try:
        low, high = (float(end) if end.strip() else None for end in text.split(","))
    except ValueError:
        raise ValueError(
            "--bounds takes observed, or the smallest and largest possible label such as 0,100 (0, has no "
            f"upper bound), not {text!r}"
        ) from None
    return low, high


def parse_emphasis(text: str) -> float | Literal["auto"]:
    """Read an emphasis on rare labels.

    >>> parse_emphasis("0.3"), parse_emphasis("auto")
    (0.3, 'auto')
    """
    if text == "auto":
        return "auto"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ValueError(f"--emphasis takes a number from 0 to 1, or auto, not {text!r}")
    return value


def parse_method_options(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Read options of a method, numbers as numbers.

    >>> parse_method_options(["evidence.weight=0.01", "smoothing=none"])
    {'evidence.weight': 0.01, 'smoothing': None}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--option takes NAME=VALUE, such as evidence.weight=0.01, not {pair!r}")
        try:
            options[key.strip()] = json.loads(text)
        except ValueError:
            options[key.strip()] = None if text == "none" else text
    return options or None
