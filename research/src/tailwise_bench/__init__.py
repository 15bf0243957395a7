"""Comparisons of the methods of tailwise: suites, contenders, runs, pages. Command: `tailwise-bench`."""
