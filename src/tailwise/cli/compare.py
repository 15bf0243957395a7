"""Commands that need no model: `demo`, `diagnose`, `compare`, `report`, `methods` and `doctor`."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from tailwise._version import __version__
from tailwise.cli import options, output, read

if TYPE_CHECKING:
    from tailwise.report.contest import Contest
    from tailwise.report.results import Results


PACKAGES = ("torch", "numpy", "pandas", "scikit-learn", "catboost", "safetensors")
"""Packages whose version matters most for what a model predicts."""


# -- labels, and an installation -------------------------------------------------------------------


def diagnose(
    data: options.Table,
    target: options.Target,
    plot: Annotated[
        Path | None, Option(metavar="FILE", help="Picture of the labels to write (.png, .svg or .pdf).")
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
    optional = {f"extra {extra}": versions for extra, versions in facts.pop("extras").items()}
    for name, fact in (facts | optional).items():
        text = "none" if fact is None else fact
        if isinstance(fact, dict):
            missing = f": pip install 'tailwise[{name[6:]}]'" if None in fact.values() else ""
            text = ", ".join(f"{package} {found or 'missing'}" for package, found in fact.items()) + missing
        elif isinstance(fact, list):
            text = ", ".join(fact)
        typer.echo(f"{name:<17} {text}")


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


# -- several methods -------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Runs:
    """How often each method is trained, and by how many processes."""

    seeds: Annotated[int, Option(metavar="N", min=1, help="Number of seeds per method.")] = 3
    epochs: options.Epochs = None
    workers: Annotated[int, Option(metavar="N", min=1, help="Number of processes.")] = 1

    def of(self, contest: Contest, quiet: bool, kept: Path | None = None) -> Results:
        """Train each method as `fit` does, and test it on the rows that the contest holds out.

        Runs that `kept` has are not repeated.
        """
        from tailwise.report.contest import run_contest
        from tailwise.report.results import Results

        with tempfile.TemporaryDirectory() as temporary:
            out = kept or Path(temporary, "results.jsonl")
            seeds = range(self.seeds)
            records = run_contest(
                contest, seeds, out=out, workers=self.workers, report=lambda line: output.note(line, quiet)
            )
        return Results(records)


@dataclass(frozen=True)
class DemoRuns(Runs):
    """The same with a process more."""

    workers: Annotated[int, Option(metavar="N", min=1, help="Number of processes.")] = 2


def demo(
    out: Annotated[
        Path, Option(metavar="FOLDER", help="Folder for the report, the picture and the results.")
    ] = Path("tailwise-demo"),
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    runs: DemoRuns,
) -> None:
    """Compare TailRegressor with three other models on a bundled table.

    They are a plain network, LDS + FDS + DER and CatBoost. TailRegressor is shown at the emphasis that it
    chose and at emphasis 1. The table has 4,177 abalones; the number of rings, which is their age, is to be
    predicted. Test rows are balanced over the labels, as with `compare --balanced`.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder with --out")
    page, picture, lines = (out / name for name in ("report.html", "demo.png", "results.jsonl"))
    output.check_outputs({path.name: path for path in (page, picture, lines)}, force=force)
    methods = ("plain", "lds-fds-der", "catboost", "tail")
    seeds = f"{runs.seeds} seed{'s' * (runs.seeds > 1)}"
    output.note(f"Training {', '.join(methods)} on abalone with {seeds} ...", quiet)
    from tailwise.data import load_abalone
    from tailwise.report.contest import Contest
    from tailwise.report.results import comparison_picture

    table = load_abalone()
    inputs, labels = table.drop(columns="Rings"), table["Rings"].to_numpy(float)
    contest = Contest("abalone", inputs, labels, methods, runs.epochs, balanced=True)
    results = runs.of(contest, quiet)
    figure = comparison_picture(results, contest.training_bins(0), label="rings (age of an abalone)")
    _print(results)
    files = _files(results, "Rings", lines=lines, page=page)
    files[picture] = lambda part: figure.savefig(part, dpi=110, format="png")
    output.write_outputs(files, quiet)


def compare(
    data: options.Table,
    target: options.Target,
    methods: Annotated[
        str | None,
        Option(
            metavar="NAMES",
            help="Comma-separated: names of `tailwise methods`, plain, catboost, catboost-weighted and tail "
            "(TailRegressor). By default the models of the page of `fit`.",
        ),
    ] = None,
    balanced: Annotated[
        bool,
        Option("--balanced", help="Test on rows balanced over the labels, at most 20 of each label bin."),
    ] = False,
    plugin: options.Plugin = None,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="RESULTS", help="Results file, one JSON line per run.")
    ] = None,
    report: options.Report = None,
    drop: options.Drop = "",
    *,
    runs: Runs,
    pictures: options.TrainingPictures,
    shared: options.Shared,
) -> None:
    """Train several methods with several seeds and rank them.

    Each method is trained as `fit --method NAME --seed N` trains it, and tested on the rows that this command
    holds out, so both give the same figures. After Ctrl-C the same command resumes where it stopped, if --out
    is given.
    """
    output.check_outputs({"--out": out, "--report": report}, force=shared.force, inputs=[data])
    names = _checked_methods(methods, pictures=pictures.images is not None)
    column, settings = options.only_target(target), pictures.parameters()
    rows = read.Reader(shared, pictures, pictures.image_size).rows(
        data, read.Roles([column], options.split_names(drop))
    )
    from tailwise.report.contest import Contest

    name, labels = (
        "data" if data == output.STANDARD else Path(data).name.split(".")[0],
        rows.labels.to_numpy(float),
    )
    contest = Contest(name, rows.X, labels, names, runs.epochs, balanced=balanced, settings=settings)
    kept = None if out is None else output.checkpoint_path(out)
    with output.resumable(kept):
        results = runs.of(contest, shared.quiet, kept)
        output.write_outputs(_files(results, column, lines=out, page=report), shared.quiet)
    if shared.as_json:
        from tailwise.report.results import comparison_verdict

        output.print_json({"verdict": comparison_verdict(results), "runs": results.records})
    else:
        _print(results)


def _checked_methods(methods: str | None, *, pictures: bool) -> tuple[str, ...]:
    """Return the names of methods; a misspelt one is an error before the table is read."""
    from tailwise.lookup import check_name
    from tailwise.methods import available_methods
    from tailwise.report.contest import BOOSTED, DEFAULT

    if methods is None:
        return tuple(name for name in DEFAULT if not (pictures and name in BOOSTED))
    names = options.split_names(methods)
    if pictures and not set(names).isdisjoint(BOOSTED):
        raise ValueError(f"boosted trees take tables, not pictures: leave {' and '.join(BOOSTED)} out")
    if not names:
        raise ValueError("--methods names no method; see `tailwise methods`")
    for name in names:
        check_name("method", name, [*DEFAULT, *available_methods()])
    return tuple(names)


def report(
    results: Annotated[
        Path, Argument(metavar="RESULTS", help="Results file written by `compare` or `tailwise-bench`.")
    ],
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="PAGE", help="HTML page; beside RESULTS by default.")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a page that ranks the methods of a results file."""
    from tailwise.report.results import Results, comparison_page, read_results

    if results.is_dir():
        raise ValueError(f"{results} is a folder: name the results file in it")
    path = out or results.with_suffix(".html")
    output.check_outputs({"--report": path}, force=force, inputs=[results])
    try:
        read = Results(read_results(results))
        title = f"{len(read.methods)} methods on {', '.join(read.data)}"
        page = comparison_page(read, title=title, command=output.command_line())
    except (KeyError, TypeError, UnicodeDecodeError, AttributeError) as error:
        lacking = f": a line lacks {error}" if isinstance(error, KeyError) else ""
        raise ValueError(f"{results} is not a results file of `tailwise compare`{lacking}") from None
    output.write_outputs({path: page}, quiet)


def _files(
    results: Results, target: str, *, lines: Path | None, page: Path | None
) -> dict[Path, output.Content]:
    """Return the content of a results file, one JSON object per line, and of the page that ranks methods."""
    from tailwise.report.results import comparison_page

    files: dict[Path, output.Content] = {}
    if lines is not None:
        files[lines] = "".join(json.dumps(record) + "\n" for record in results.records)
    if page is not None:
        title = f"{target}: {len(results.methods)} methods on {results.data[0]}"
        files[page] = comparison_page(results, title=title, command=output.command_line())
    return files


def _print(results: Results) -> None:
    """Print a table of methods for each data set, and what it shows."""
    from tailwise.report.results import COLUMNS, comparison_verdict, method_cells

    for data in results.data:
        rows = [[title, *cells] for title, cells in method_cells(results, data).items()]
        output.print_table(["method", *(figure.name for figure in COLUMNS)], rows, title=data)
    for line in comparison_verdict(results):
        output.print_words(line)
