"""Runs of a benchmark: contenders, tuning, worker processes and results files.

Others may use `contenders`, `results`, `runs.run_one`, `runs.run_suite` and `workers.Workers`.
"""
