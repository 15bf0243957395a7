"""Figures of a server as Prometheus reads them."""

from tailwise.serving.counters import Counters


def test_every_answer_is_in_one_bucket_of_the_histogram() -> None:
    counters = Counters("9.9")
    for status, seconds in ((200, 0.001), (200, 0.3), (503, 0.0), (422, 100.0)):
        counters.answered(status, seconds)
    counters.predicted(7, 0.25)
    lines = dict(
        line.rsplit(" ", 1) for line in counters.text(3, 64).splitlines() if not line.startswith("#")
    )
    assert lines['tailwise_requests_total{status="200"}'] == "2"
    assert lines['tailwise_requests_total{status="503"}'] == "1"
    assert lines['tailwise_request_seconds_bucket{le="0.005"}'] == "2"
    assert lines['tailwise_request_seconds_bucket{le="0.5"}'] == "3"
    assert (
        lines['tailwise_request_seconds_bucket{le="+Inf"}'] == "4" == lines["tailwise_request_seconds_count"]
    )
    assert float(lines["tailwise_request_seconds_sum"]) == 100.301
    assert lines["tailwise_rows_total"] == "7" and lines["tailwise_batches_total"] == "1"
    assert lines["tailwise_queue_requests"] == "3" and lines["tailwise_queue_limit"] == "64"
    assert lines['tailwise_info{version="9.9"}'] == "1" and counters.answers == 2
