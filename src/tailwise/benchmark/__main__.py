"""``python -m tailwise.benchmark``: prepare data, run a suite, write its tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tailwise.benchmark.suites import MAX_ROWS, PER_BIN, SUITES


def _seeds(text: str) -> list[int]:
    """``5`` means 0..4, ``0,3`` these two."""
    return [int(part) for part in text.split(",")] if "," in text else list(range(int(text)))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tailwise.benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="split and encode the tables of a suite")
    prepare.add_argument("--suite", default="tabular", choices=list(SUITES))
    prepare.add_argument("--out", type=Path, required=True, help="folder for the arrays")
    prepare.add_argument("--seeds", type=_seeds, default=_seeds("5"), help="how many, or which: 5 or 0,3")
    prepare.add_argument("--max-rows", type=int, default=MAX_ROWS, help="training rows at most")
    prepare.add_argument("--per-bin", type=int, default=PER_BIN, help="held-out rows per label bin at most")
    run = commands.add_parser("run", help="run contenders on prepared data; resumes")
    run.add_argument("--prepared", type=Path, required=True, help="folder that `prepare` wrote")
    run.add_argument("--out", type=Path, required=True, help="results.jsonl, appended to")
    run.add_argument(
        "--methods",
        default="all",
        help="names with commas between; all, peers and ablation-lambda, -bins, ... are groups",
    )
    run.add_argument("--data", default=None, help="data sets with commas between; all by default")
    run.add_argument("--seeds", type=_seeds, default=_seeds("5"), help="how many, or which: 5 or 0,3")
    run.add_argument("--workers", type=int, default=1, help="processes at once")
    run.add_argument("--trials", type=int, default=None, help="configurations tried per method")
    run.add_argument("--epochs", type=int, default=None, help="epochs at most")
    run.add_argument("--time-limit", type=float, default=None, help="stop after this many seconds")
    tables = commands.add_parser("tables", help="write Markdown, CSV and LaTeX tables")
    tables.add_argument("results", type=Path, nargs="+", help="results.jsonl files")
    tables.add_argument("--out", type=Path, default=Path("docs/results"), help="folder for the tables")
    tables.add_argument("--name", default="tabular", help="name of the files")
    tables.add_argument("--title", default="Tabular benchmark", help="headline")
    tables.add_argument("--reference", default=None, help="contender the others are tested against: vir")
    prior = commands.add_parser("search-prior", help="search VIR's prior: a grid, then TPE; resumes")
    prior.add_argument("--prepared", type=Path, required=True, help="folder that `prepare` wrote")
    prior.add_argument("--data", required=True, help="data set")
    prior.add_argument("--storage", type=Path, required=True, help="journal that processes may share")
    prior.add_argument("--trials", type=int, default=40, help="finished trials in all")
    prior.add_argument("--workers", type=int, default=1, help="processes at once")
    prior.add_argument("--epochs", type=int, default=None, help="epochs at most")
    prior.add_argument("--criterion", default="balanced_nll", help="validation metric to go by")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 1 if a run failed, 3 if some are left."""
    args = _parser().parse_args(arguments)
    if args.command == "prepare":
        from tailwise.benchmark.suites import prepare

        prepare(args.suite, args.out, args.seeds, max_rows=args.max_rows, per_bin=args.per_bin, report=_say)
        return 0
    if args.command == "tables":
        from tailwise.benchmark.tables import write_tables

        written = write_tables(
            args.results, args.out, name=args.name, reference=args.reference, title=args.title
        )
        for path in written:
            _say(f"wrote {path}")
        return 0
    from tailwise.benchmark.contenders import Recipe, choose_contenders
    from tailwise.benchmark.runs import run_suite

    recipe = Recipe()
    if args.epochs is not None:
        recipe = replace(recipe, train=replace(recipe.train, epochs=args.epochs))
    if args.command == "search-prior":
        from tailwise.benchmark.prior import search_prior

        found = search_prior(
            args.prepared,
            args.data,
            storage=args.storage,
            trials=args.trials,
            workers=args.workers,
            criterion=args.criterion,
            recipe=recipe,
        )
        _say(f"prior {found.prior}: {args.criterion} {found.score:.4f}, best of {found.trials} trials")
        return 0
    if args.trials is not None:
        recipe = replace(recipe, trials=args.trials)
    summary = run_suite(
        args.prepared,
        choose_contenders(args.methods),
        out=args.out,
        seeds=args.seeds,
        data=args.data.split(",") if args.data else None,
        recipe=recipe,
        workers=args.workers,
        time_limit=args.time_limit,
    )
    _say(f"{summary.done} runs in {summary.seconds:.0f} s, {summary.left} left, {len(summary.failed)} failed")
    for line in summary.failed:
        _say(f"  {line}")
    return 1 if summary.failed else 3 if summary.left else 0


if __name__ == "__main__":
    sys.exit(main())
