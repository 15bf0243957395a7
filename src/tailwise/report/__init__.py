"""Charts, verdicts and HTML pages that show whether a model's tail can be trusted.

Other rooms may use:

- `diagnosis`: `diagnose`, what a label distribution looks like and what to do about it
- `scoring`: `score_model`, a model's predictions for new rows with figures by region
- `verdict`: `judge`, what those figures show in words
- `page`: `Facts` and `model_page`, the page about one model
- `ranking`: `comparison_page`, `comparison_verdict` and `method_cells`, for runs of several methods
- `plots`: every chart as a function of matplotlib Axes
- `formatting`: numbers as text
"""
