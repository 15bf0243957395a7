"""Commands before there is a model: `diagnose`, `methods` and `doctor`."""

from __future__ import annotations

import os
import platform
import re
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from tailwise._version import __version__
from tailwise.cli import options, output, read

PACKAGES = ("torch", "numpy", "pandas", "scikit-learn", "catboost", "safetensors")
"""Packages whose version matters most for what a model predicts."""


def diagnose(
    data: options.Table,
    target: options.Target,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Picture of the labels to write (.png, .svg or .pdf).")
    ] = None,
    *,
    shared: options.Shared,
) -> None:
    """Measure how imbalanced a column is.

    Prints how many labels are rare and what to do about it, which may be nothing.
    """
    column = options.only_target(target)
    output.check_outputs({"--plot": plot}, force=shared.force, inputs=[data])
    table = read.Reader(shared).table(data)
    if table.shape[1] == 1:  # labels alone are enough here, but splitting asks for an input
        table = table.assign(**{" row": 0})
    labels = read.split_labelled(table, read.Roles([column]), data, shared.quiet).y
    from tailwise.report.diagnosis import diagnose as examine  # imports torch, so read the table first

    diagnosis = examine(labels[column].to_numpy())
    if plot is not None:
        figure, kind = (
            diagnosis.plot(label=column).get_figure(root=True),
            plot.suffix.lstrip(".").lower() or "png",
        )
        if figure is None or kind not in figure.canvas.get_supported_filetypes():
            raise ValueError(f"cannot draw {plot}: use .png, .svg or .pdf")
        output.write_outputs({plot: lambda part: figure.savefig(part, format=kind, dpi=150)}, shared.quiet)
    if shared.as_json:
        output.print_json(diagnosis.to_dict())
    else:
        typer.echo(diagnosis.summary(flags=True))


def methods(as_json: options.Json = False) -> None:
    """List all methods with their sources."""
    from tailwise.methods import available_methods, get_method

    listed = [get_method(name) for name in available_methods()]
    if as_json:
        shown = ("name", "title", "uncertainty", "about")
        output.print_json([{key: getattr(method, key) for key in shown} for method in listed])
        return
    for method in listed:
        output.print_words(f"{method.name}  ({method.title}; uncertainty: {method.uncertainty})")
        output.print_words(f"  {method.about}")


def doctor(as_json: options.Json = False) -> None:
    """Print versions, device, threads, and which extras are installed."""
    import torch

    devices = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    facts: dict[str, Any] = {
        "tailwise": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "devices": ["cpu", *devices],
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "extras": {extra: {name: version_of(name) for name in names} for extra, names in extras().items()},
    }
    if as_json:
        output.print_json(facts)
        return
    for name, fact in facts.items():
        if name == "extras":
            continue
        if isinstance(fact, dict):
            fact = [f"{package} {version}" for package, version in fact.items()]
        typer.echo(f"{name:<16} {', '.join(map(str, fact)) if isinstance(fact, list) else fact}")
    for extra, versions in facts["extras"].items():
        missing = [name for name, version in versions.items() if version is None]
        shown = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
        remedy = f": pip install 'tailwise[{extra}]'" if missing else ""
        typer.echo(f"extra {extra:<10} {shown}{remedy}")


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, list[str]]:
    """Return the packages of each extra, except those for development; none in a checkout not installed."""
    packages: dict[str, list[str]] = defaultdict(list)
    try:
        required = metadata.requires("tailwise") or []
    except metadata.PackageNotFoundError:
        required = []
    for line in required:
        extra = re.search(r"extra == ['\"](\w+)", line)
        if extra is not None and extra[1] not in ("dev", "docs"):
            packages[extra[1]].append(re.split(r"[^\w-]", line)[0])
    return packages
