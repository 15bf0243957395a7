"""Runs of a benchmark: contenders, tuning, worker processes and results files.

Others may use `contenders`, `results`, `run_once.run_one`, `runs.run_suite` and `workers.Workers`.
"""
