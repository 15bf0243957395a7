"""Running a benchmark: contenders, tuning, worker processes and results files."""
