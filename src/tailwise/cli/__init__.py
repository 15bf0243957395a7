"""The `tailwise` command: options, messages, exit codes, and what is written where.

Others may use `main`. Exit codes: 0 success, 1 an error that the user can fix, 2 wrong usage,
130 stopped by Ctrl-C, 143 stopped by SIGTERM. Each output is written to a temporary file and
moved into place when it is complete. Nothing is overwritten without --force. Heavy modules are imported
inside the commands, so that --help is instant.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

_received: list[int] = []


def exit_code() -> int:
    """Return the exit code that shells use for the signal that stopped the command."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def _stop(number: int, _: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def discard_output() -> None:
    """Drop what standard output could not take; otherwise Python reports the error again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the `tailwise` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the process that started this one
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    # A short command mostly imports modules, whose objects stay alive. With the default thresholds the
    # garbage collector scans them so often that it takes a tenth of the time.
    gc.set_threshold(50_000, 20, 100)
    try:
        for name in ("SIGTERM", "SIGHUP"):  # they stop a command as Ctrl-C does; Windows has only the first
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _stop)
        from tailwise.cli.app import app

        app()
    except KeyboardInterrupt:  # during imports; the app handles later ones
        sys.stderr.write("stopped\n")
        sys.exit(exit_code())
    except OSError as error:  # standard output cannot be written, not even for --help
        discard_output()
        sys.stderr.write(f"error: cannot write: {error.strerror}\n")
        sys.exit(1)
