"""Scores, verdicts, charts and pages that show whether a model's tail can be trusted.

Other rooms may use:

- `diagnosis`: `diagnose`, what a label distribution looks like and what to do about it
- `scores`: `Scores`, one model on one table; `Seen`, its rows; `FIGURES`, a row for each figure; `line_up`, a
  model beside its baselines on the same rows
- `verdict`: `contrast`, what differs between two models; `judge`, what a lineup shows, in fields
- `page`: `drivers_of` and `model_page`, the page about one model
- `contest`, `results`: methods as `fit` trains them, over several seeds: runs, lines and pages
- `displays`: charts of a fitted model, such as `RegionDisplay.from_estimator`, in a notebook and on a page
- `wording`: numbers as text, sentences and pages from `templates`
"""
