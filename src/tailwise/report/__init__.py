"""Charts, verdicts and HTML pages that show whether a model's tail can be trusted.

Other rooms may use:

- `diagnosis`: `diagnose`, what a label distribution looks like and what to do about it
- `scoring`: `score_model`, a model's predictions for new rows with figures by region
- `baselines`: `line_up`, a model beside a plain network, boosted trees and a constant on the same rows
- `verdict`: `judge`, what such a lineup shows in words
- `contest`: `Contest` and `run_contest`, methods as `fit` trains them, over several seeds
- `drivers`: `drivers_of`, which columns drive the tail, and reasons of single rows
- `page`: `Facts` and `model_page`, the page about one model
- `ranking`: `comparison_page`, `comparison_verdict` and `method_cells`, for runs of several methods
- `displays`: plots of a fitted model as scikit-learn has them, such as `RegionDisplay.from_estimator`
- `plots`: every chart as a function of matplotlib Axes
- `formatting`: numbers as text
"""
