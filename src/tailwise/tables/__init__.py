"""Tables: read and check them, and turn them into numbers.

- `read`, `write`: tables on disk
- `columns`: what the columns of a table hold
- `inputs`: inputs of any kind that users bring, and checks of them and of labels before training
- `encode`: columns of any kind as a numeric matrix; `column_encoders`: text, categories and dates
- `split`: rows of the training, validation and test parts
- `inputs`: inputs of any kind, as tensors or by rows
- `equal_rows`: repeated rows merged into weights
"""
