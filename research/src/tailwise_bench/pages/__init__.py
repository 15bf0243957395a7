"""Pages of results, written from results files alone: statistics, tables and sentences.

Others may use `statistics` (`Figure`, `Results`, `compare`) and the functions that write pages.
"""
