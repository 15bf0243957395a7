"""What is compared on: data sets, suites of them, and their configurations."""
