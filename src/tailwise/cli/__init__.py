"""The `tailwise` command. Heavy imports wait until a command runs, so that --help is instant.

Exit codes: 0 fine, 1 something the user can mend, 2 wrong usage, 3 the time given to `bench` is up, 130
stopped by Ctrl-C, 143 by SIGTERM. Every output is written beside its place and moved there when it is
whole, and nothing is overwritten without --force.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT


class Stopped(KeyboardInterrupt):
    """A signal asks the command to end: what Ctrl-C would undo and keep is undone and kept."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def stop_code(stop: KeyboardInterrupt) -> int:
    """The exit code that shells know a signal by."""
    return 128 + stop.number if isinstance(stop, Stopped) else INTERRUPTED


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)


def discard_output() -> None:
    """Drop what standard output could not take, or Python would complain of it once more at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of the `tailwise` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    # Nearly all of a short command is imports, whose objects stay: looking through them for garbage as
    # often as Python would by default costs a tenth of the time.
    gc.set_threshold(50_000, 20, 100)
    try:
        for name in ("SIGTERM", "SIGHUP"):  # Windows knows only the first
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _stop)
        from tailwise.cli.commands import app

        app()
    except KeyboardInterrupt as stop:  # while still importing; later ones end in the app
        sys.stderr.write("stopped\n")
        sys.exit(stop_code(stop))
    except OSError as error:  # not even the help could be written
        discard_output()
        sys.stderr.write(f"error: cannot write: {error.strerror}\n")
        sys.exit(1)
