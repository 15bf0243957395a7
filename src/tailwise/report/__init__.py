"""Scores, verdicts, charts and pages that show whether a model's tail can be trusted.

Other rooms may use:

- `diagnosis`: `diagnose`, what a label distribution looks like and what to do about it
- `scores`: `Scores`, one model on one table; `Seen`, its rows; `FIGURES`, a row for each figure
- `baselines`: `line_up`, a model beside the `BASELINES` on the same rows
- `verdict`: `judge`, what such a lineup shows, in fields
- `page`: `facts_of`, `drivers_of` and `model_page`, the page about one model
- `contest`, `results`, `ranking`: methods as `fit` trains them, over several seeds: runs, lines and pages
- `displays`: charts of a fitted model, such as `RegionDisplay.from_estimator`, in a notebook and on a page
- `plots`: drawings and axes that several charts share
- `wording`: numbers as text, sentences and pages from `templates`
"""
