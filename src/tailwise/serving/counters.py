"""Figures of a server, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""


class Counters:
    """Counts answers, rows and seconds. All methods may be called from any thread.

    >>> counters = Counters("1.0")
    >>> counters.answered(200, 0.02)
    >>> print(counters.text(0, 64).splitlines()[2])
    tailwise_requests_total{status="200"} 1
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._answers: Counter[int] = Counter()
        self._seconds = [0] * (len(BOUNDS) + 1)
        self._total_seconds = 0.0
        self._rows = self._batches = 0
        self._busy_seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        """Count an answer of /predict, refusals included."""
        with self._lock:
            self._answers[status] += 1
            self._seconds[bisect_left(BOUNDS, seconds)] += 1
            self._total_seconds += seconds

    def predicted(self, rows: int, seconds: float) -> None:
        """Count a batch of rows that the model predicted at once."""
        with self._lock:
            self._rows += rows
            self._batches += 1
            self._busy_seconds += seconds

    @property
    def answers(self) -> int:
        """Number of requests with predictions."""
        return self._answers[200]

    def text(self, waiting: int, most: int) -> str:
        """Return all figures; `waiting` requests are in the queue, which takes `most`."""
        with self._lock:
            lines = [
                "# HELP tailwise_requests_total Answers of /predict by status.",
                "# TYPE tailwise_requests_total counter",
                *(f'tailwise_requests_total{{status="{s}"}} {n}' for s, n in sorted(self._answers.items())),
                "# HELP tailwise_request_seconds Time from a request to its answer.",
                "# TYPE tailwise_request_seconds histogram",
            ]
            below = 0
            for bound, count in zip((*BOUNDS, "+Inf"), self._seconds, strict=True):
                below += count
                lines.append(f'tailwise_request_seconds_bucket{{le="{bound}"}} {below}')
            figures = [
                ("tailwise_request_seconds_sum", None, "", f"{self._total_seconds:.6f}"),
                ("tailwise_request_seconds_count", None, "", below),
                ("tailwise_rows_total", "counter", "Rows predicted.", self._rows),
                ("tailwise_batches_total", "counter", "Calls of the model.", self._batches),
                (
                    "tailwise_busy_seconds_total",
                    "counter",
                    "Time in the model.",
                    f"{self._busy_seconds:.6f}",
                ),
            ]
        figures += [
            ("tailwise_queue_requests", "gauge", "Requests that wait or are being answered.", waiting),
            ("tailwise_queue_limit", "gauge", "Requests that may wait; others get status 503.", most),
            (f'tailwise_info{{version="{self._version}"}}', "gauge", "Version of tailwise.", 1),
        ]
        for name, kind, about, value in figures:
            bare = name.partition("{")[0]
            lines += [f"# HELP {bare} {about}", f"# TYPE {bare} {kind}"] if kind else []
            lines.append(f"{name} {value}")
        return "\n".join(lines) + "\n"
