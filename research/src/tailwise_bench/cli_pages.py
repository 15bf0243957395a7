"""Commands of `tailwise bench` that write pages of finished runs. They need no data and train nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailwise_bench.cli_options import RESULTS, print_line


def tables_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Results files of one suite.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the tables.")] = RESULTS,
    name: Annotated[str | None, typer.Option(help="Name of the files; by default the suite's.")] = None,
    title: Annotated[str | None, typer.Option(help="Headline of the page.")] = None,
    times: Annotated[Path | None, typer.Option(help="File written by `tailwise-bench time`.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Method that the others are tested against; by default VIR.")
    ] = None,
) -> None:
    """Write tables of results files.

    Writes a Markdown page and a CSV file.
    """
    from tailwise_bench.pages.suite_page import write_tables

    for path in write_tables(results, out, name=name, reference=reference, title=title, times=times):
        print_line(f"wrote {path}")


def stsb_command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="Results files, one per suite; by default those that research/results has.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "stsb.md",
) -> None:
    """Write the page on STS-B-DIR.

    It shows our results beside the paper's.
    """
    from tailwise_bench.pages.stsb_page import write_page

    suites = [RESULTS / name / "results.jsonl" for name in ("stsb-paper", "stsb-modern")]
    given = results or [path for path in suites if path.is_file()] or suites
    print_line(f"wrote {write_page(given, out)}")


def faces_command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="Results files, one per suite; by default that of UTKFace in research/results.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "utkface.md",
) -> None:
    """Write the page on faces.

    It shows every metric by region, and what the dial gives.
    """
    from tailwise_bench.pages.faces_page import write_page

    print_line(f"wrote {write_page(results or [RESULTS / 'utkface' / 'results.jsonl'], out)}")


def depth_command(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file of a suite of depth maps.")
    ] = RESULTS / "nyuv2-small" / "results.jsonl",
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "nyuv2-small.md",
    prepared: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder written by `tailwise-bench prepare`: also draw predicted maps of some pictures.",
        ),
    ] = None,
) -> None:
    """Write the page on depth maps.

    It shows every metric by region. With --prepared it also draws depth and uncertainty of some pictures.
    """
    from tailwise_bench.pages.depth_page import draw_maps, write_page

    print_line(f"wrote {write_page(results, out)}")
    if prepared is not None:
        print_line(f"wrote {draw_maps(results, prepared, out.with_suffix('.png'))}")


def estimator_page_command(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Results file of `tailwise-bench estimator`.")
    ] = RESULTS / "estimator.jsonl",
    out: Annotated[Path, typer.Option(help="Markdown file.")] = RESULTS / "estimator.md",
) -> None:
    """Write the page of `bench estimator`.

    Needs no data and also works while runs are missing.
    """
    from tailwise_bench.pages.estimator_page import write_estimator_page

    print_line(f"wrote {write_estimator_page(results, out)}")
