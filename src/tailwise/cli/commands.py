"""The application with every command, in the order of --help."""

from __future__ import annotations

from tailwise.cli import comparisons, first_look, models
from tailwise.cli.app import app as app

for command in (
    first_look.demo,
    first_look.diagnose,
    models.fit,
    models.predict,
    models.evaluate,
    models.export,
    comparisons.compare,
    comparisons.report,
    comparisons.methods,
):
    app.command()(command)
# Its arguments and its --help are those of the benchmark's own parser.
app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(comparisons.bench)
