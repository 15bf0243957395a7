"""Compare methods on many data sets: prepare their data, run, write tables. Every step resumes."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailwise.benchmark.data.problems import PER_BIN
from tailwise.benchmark.data.suites import SUITES, get_suite, suite_of

if TYPE_CHECKING:
    from tailwise.benchmark.run.contenders import Recipe
    from tailwise.benchmark.run.runs import Summary


def _seeds(text: str) -> list[int]:
    """``5`` means 0..4, ``0,3`` these two."""
    if "," in text:
        return [_count(part, least=0) for part in text.split(",")]
    return list(range(_count(text)))


def _seconds(text: str) -> float:
    """A time that can pass; with 0 nothing is begun."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _count(text: str, *, least: int = 1) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _suite_name(text: str) -> str:
    try:
        get_suite(text)
    except (ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _plugin(text: str) -> str:
    from tailwise.benchmark.run.plugins import load_plugin

    try:
        load_plugin(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _plugin_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tailwise bench", add_help=False, allow_abbrev=False)
    words = "Python file that registers methods of your own, which --methods can name then"
    parser.add_argument("--plugin", type=_plugin, action="append", default=[], metavar="FILE", help=words)
    return parser


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tailwise bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plugin = _plugin_parser()
    seeds = argparse.ArgumentParser(add_help=False)
    seeds.add_argument("--seeds", type=_seeds, default=_seeds("5"), help="how many, or which: 5 or 0,3")
    work = argparse.ArgumentParser(add_help=False, parents=[plugin])
    work.add_argument("--workers", type=_count, default=1, help="processes at once")
    work.add_argument("--epochs", type=_count, default=None, help="epochs at most")
    work.add_argument("--trials", type=_count, default=None, help="configurations tried")
    limit = argparse.ArgumentParser(add_help=False)
    limit.add_argument("--time-limit", type=_seconds, default=None, help="stop after this many seconds")
    groups = "names with commas between; all, peers and ablation-lambda, -bins, ... are groups"
    suites = f"{', '.join(SUITES)}, or a TOML file like those in tailwise/benchmark/configurations"
    data = argparse.ArgumentParser(add_help=False)
    data.add_argument("--prepared", type=Path, required=True, help="folder that `prepare` wrote")
    whole = argparse.ArgumentParser(add_help=False)
    whole.add_argument("suite", nargs="?", default="tabular", type=_suite_name, help=suites)
    whole.add_argument("--work", type=Path, default=Path(".tailwise-bench"), help="folder of prepared data")

    suite = commands.add_parser("suite", parents=[whole, work, limit], help="all steps: prepare, run, tables")
    suite.add_argument("--seeds", type=_seeds, default=None, help="how many, or which: 5 or 0,3")
    suite.add_argument("--methods", default=None, help=groups)
    suite.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of results and tables")
    suite.add_argument("--times", action="store_true", help="take times as well, see the command `time`")

    prepare = commands.add_parser(
        "prepare", parents=[seeds, plugin], help="split and encode a suite's tables"
    )
    prepare.add_argument("--suite", default="tabular", type=_suite_name, help=suites)
    prepare.add_argument("--out", type=Path, required=True, help="folder for the arrays")
    prepare.add_argument("--max-rows", type=int, default=None, help="training rows at most")
    prepare.add_argument("--per-bin", type=int, default=PER_BIN, help="held-out rows per label bin at most")

    run = commands.add_parser(
        "run", parents=[data, seeds, work, limit], help="run contenders on prepared data"
    )
    run.add_argument("--out", type=Path, required=True, help="results.jsonl, appended to")
    run.add_argument("--methods", default="all", help=groups)
    run.add_argument("--data", default=None, help="data sets with commas between; all by default")

    tables = commands.add_parser("tables", help="write Markdown, CSV and LaTeX tables")
    tables.add_argument("results", type=Path, nargs="+", help="results.jsonl files")
    tables.add_argument("--out", type=Path, default=Path("docs/results"), help="folder for the tables")
    tables.add_argument("--name", default=None, help="name of the files; that of the suite by default")
    tables.add_argument("--title", default=None, help="headline")
    tables.add_argument("--times", type=Path, default=None, help="what the command `time` wrote")
    tables.add_argument("--reference", default=None, help="contender the others are tested against: vir")

    stsb = commands.add_parser("stsb", help="write the page of STS-B-DIR beside the paper's figures")
    stsb.add_argument(
        "results",
        type=Path,
        nargs="*",
        default=[Path("docs/results") / name / "results.jsonl" for name in ("stsb-paper", "stsb-modern")],
        help="results.jsonl files, one per configuration; those of docs/results by default",
    )
    stsb.add_argument("--out", type=Path, default=Path("docs/results/stsb.md"), help="Markdown file")

    times = commands.add_parser(
        "time", parents=[data, limit, plugin], help="fit what every contender chose once more, on one thread"
    )
    times.add_argument("results", type=Path, nargs="+", help="results.jsonl files, of the same data")
    times.add_argument("--out", type=Path, default=Path("docs/results/times.jsonl"), help="appended to")

    ablations = commands.add_parser(
        "ablations", parents=[whole, seeds, work, limit], help="run all ablations of VIR, write their page"
    )
    ablations.add_argument(
        "--out", type=Path, default=Path("docs/results/ablations.jsonl"), help="appended to; a page beside"
    )

    defaults = commands.add_parser(
        "choose-defaults", parents=[work, limit], help="every method's defaults, on development data"
    )
    defaults.add_argument(
        "--prepared",
        type=Path,
        default=None,
        help="folder that `prepare` wrote; without one nothing is run and the page is written from --out",
    )
    defaults.add_argument("--methods", default=None, help="names with commas between; all by default")
    defaults.add_argument(
        "--out",
        type=Path,
        default=Path("docs/results/defaults.jsonl"),
        help="lines, appended to; a page beside",
    )

    prior = commands.add_parser("search-prior", parents=[data, work], help="VIR's prior: a grid, then TPE")
    prior.add_argument("--data", required=True, help="data set")
    prior.add_argument("--storage", type=Path, required=True, help="journal that processes may share")
    prior.add_argument("--criterion", default="balanced_nll", help="validation metric to go by")
    return parser


def _recipe(args: argparse.Namespace) -> Recipe:
    """That of the suite, or of the one a folder was prepared for, within the budget that was asked for."""
    suite = get_suite(args.suite) if "suite" in args else suite_of(args.prepared)
    return suite.recipe.within(epochs=args.epochs, trials=args.trials)


def _suite(args: argparse.Namespace) -> int:
    from tailwise.benchmark import bench

    summary = bench(
        args.suite, out=args.out, work=args.work, methods=args.methods, seeds=args.seeds,
        recipe=_recipe(args), workers=args.workers, time_limit=args.time_limit, times=args.times, report=_say,
    )  # fmt: skip
    return _told(summary)


def _prepare(args: argparse.Namespace) -> int:
    from tailwise.benchmark.data.suites import prepare

    prepare(args.suite, args.out, args.seeds, max_rows=args.max_rows, per_bin=args.per_bin, report=_say)
    return 0


def _run(args: argparse.Namespace) -> int:
    from tailwise.benchmark.run.contenders import choose_contenders
    from tailwise.benchmark.run.runs import run_suite

    chosen = None if args.data is None else args.data.split(",")
    contenders = choose_contenders(args.methods, suite_of(args.prepared).options)
    summary = run_suite(
        args.prepared, contenders, out=args.out, seeds=args.seeds, data=chosen,
        recipe=_recipe(args), workers=args.workers, time_limit=args.time_limit,
    )  # fmt: skip
    for line in summary.failed:
        _say(f"failed: {line}")
    return _told(summary)


def _told(summary: Summary) -> int:
    failed = len(summary.failed)
    _say(f"{summary.done} runs in {summary.seconds:.0f} s, {summary.left} left, {failed} failed")
    return 1 if failed else 3 if summary.left else 0


def _tables(args: argparse.Namespace) -> int:
    from tailwise.benchmark.pages.tables import write_tables

    for path in write_tables(
        args.results, args.out, name=args.name, reference=args.reference, title=args.title, times=args.times
    ):
        _say(f"wrote {path}")
    return 0


def _time(args: argparse.Namespace) -> int:
    from tailwise.benchmark.run.contenders import choose_contenders
    from tailwise.benchmark.run.results import read_results
    from tailwise.benchmark.run.times import take_times

    suite = suite_of(args.prepared)
    runs = read_results(*args.results)
    # Epochs and trials are those of the runs, which may have had a budget of their own.
    recipe = suite.recipe.within(**{name: runs[0]["recipe"][name] for name in ("epochs", "trials")})
    names = dict.fromkeys(run["method"] for run in runs)
    summary = take_times(
        args.prepared, runs, choose_contenders(names, suite.options), out=args.out, recipe=recipe,
        time_limit=args.time_limit,
    )  # fmt: skip
    return _told(summary)


def _ablations(args: argparse.Namespace) -> int:
    from tailwise.benchmark.pages.ablation_tables import write_ablations
    from tailwise.benchmark.run.ablations import ablations
    from tailwise.benchmark.run.contenders import choose_contenders
    from tailwise.benchmark.run.runs import run_missing

    summary = run_missing(
        args.suite, choose_contenders(ablations()), out=args.out, work=args.work, seeds=args.seeds,
        recipe=_recipe(args), workers=args.workers, time_limit=args.time_limit, report=_say,
    )  # fmt: skip
    if not summary.left:
        _say(f"wrote {write_ablations(args.out, args.out.with_suffix('.md'))}")
    return _told(summary)


def _stsb(args: argparse.Namespace) -> int:
    from tailwise.benchmark.pages.published import write_page

    _say(f"wrote {write_page(args.results, args.out)}")
    return 0


def _choose_defaults(args: argparse.Namespace) -> int:
    from tailwise.benchmark.run.defaults import choose_defaults, write_defaults

    if args.prepared is None:
        _say(f"wrote {write_defaults(args.out, args.out.with_suffix('.md'))}")
        return 0
    summary = choose_defaults(
        args.prepared, out=args.out, seeds=range(suite_of(args.prepared).seeds), recipe=_recipe(args),
        methods=None if args.methods is None else args.methods.split(","), workers=args.workers,
        time_limit=args.time_limit,
    )  # fmt: skip
    if not summary.left:
        _say(f"wrote {write_defaults(args.out, args.out.with_suffix('.md'))}")
    return _told(summary)


def _search_prior(args: argparse.Namespace) -> int:
    from tailwise.benchmark.run.prior import search_prior

    found = search_prior(
        args.prepared, args.data, storage=args.storage, trials=args.trials or 40, workers=args.workers,
        criterion=args.criterion, recipe=_recipe(args),
    )  # fmt: skip
    _say(f"prior {found.prior}: {args.criterion} {found.score:.4f}, best of {found.trials} trials")
    return 0


_COMMANDS = {
    "suite": _suite,
    "prepare": _prepare,
    "run": _run,
    "tables": _tables,
    "stsb": _stsb,
    "time": _time,
    "ablations": _ablations,
    "choose-defaults": _choose_defaults,
    "search-prior": _search_prior,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 1 if a run failed, 3 if the time was up first."""
    # First of all: a suite's file may name methods of a plugin, wherever that stands on the command line.
    _plugin_parser().parse_known_args(arguments)
    args = _parser().parse_args(arguments)
    return _COMMANDS[args.command](args)


def _as_command() -> int:
    """`main` for a shell; `tailwise bench` does the same for all commands, but needs packages of its own."""
    try:
        return main()
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    except (ValueError, OSError, ImportError) as error:
        _say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(_as_command())
