"""Commands about models in use: `serve`, `card` and `doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tailwise.cli.options import Coverage, Force, Json, Model, Quiet, Trust
from tailwise.cli.output import check_outputs, note, print_json, write_outputs
from tailwise.cli.read import load_model


def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is all of them.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    max_rows: Annotated[int, typer.Option(metavar="N", min=1, help="Most rows of one request.")] = 1000,
    max_bytes: Annotated[int, typer.Option(metavar="N", min=1, help="Most bytes of one request.")] = 4 << 20,
    max_waiting: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most requests that wait; others get status 503.")
    ] = 64,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Threads of the networks; torch chooses by default."),
    ] = None,
    quiet: Quiet = False,
    *,
    trust: Trust,
) -> None:
    """Answer requests for predictions over HTTP.

    POST rows as JSON to /predict; /docs describes the columns. After Ctrl-C or SIGTERM, accepted requests are
    still answered.
    """
    from tailwise.serving.installation import require

    require("serve", "fastapi", "uvicorn", "prometheus_client")
    from tailwise.serving.web import Limits, Service, listen, server

    fitted = load_model(model, trust.verify)
    limits = Limits(max_rows=max_rows, max_body=max_bytes, max_waiting=max_waiting)
    with listen(host, port) as sock:
        service = Service(fitted, title=model.name, limits=limits, threads=threads)
        shown = f"[{host}]" if ":" in host else host
        note(f"serving {model} on http://{shown}:{sock.getsockname()[1]} (Ctrl-C stops it)", quiet)
        try:
            server(service).run(sockets=[sock])
        except KeyboardInterrupt:  # the server repeats the signal when it has shut down
            note(f"stopped after {service.answers} answers", quiet)


def card(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Markdown file to write.")],
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="What `tailwise evaluate --json` printed, or an HTML report to link to.",
        ),
    ] = None,
    coverage: Coverage = 0.9,
    force: Force = False,
    quiet: Quiet = False,
    *,
    trust: Trust,
) -> None:
    """Write a model card: training, columns, errors and intervals in Markdown.

    The figures come from held-out rows in the model file and, with --report, from a test.
    """
    check_outputs({"--out": out}, force=force, inputs=[model, *([report] if report else [])])
    fitted = load_model(model, trust.verify)
    from tailwise.serving.model_card import model_card

    page = str(report) if report is not None and report.suffix.lower() in (".html", ".htm") else None
    test = None if report is None or page else _printed(report)
    text = model_card(fitted, name=model.name, coverage=coverage, test=test, page=page)
    write_outputs({out: text}, quiet=quiet)


def _printed(path: Path) -> dict[str, Any]:
    """Read what a command printed with --json."""
    import json

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not ("targets" in found or "verdict" in found):
        raise ValueError(f"{path} is neither the output of `tailwise evaluate --json` nor an HTML report")
    return found


def doctor(as_json: Json = False) -> None:
    """Print versions, device, threads, and which extras are installed."""
    from tailwise.serving.installation import as_text, installation

    found = installation()
    if as_json:
        print_json(found)
    else:
        typer.echo(as_text(found))
