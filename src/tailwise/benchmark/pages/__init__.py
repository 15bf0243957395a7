"""Pages of results: statistics, tables and sentences, all from results files."""
