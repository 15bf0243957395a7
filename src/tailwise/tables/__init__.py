"""Tables: read and check them, and turn them into numbers.

- `read`: tables on disk
- `columns`: what the columns of a table hold
- `inputs`: inputs of any kind that users bring, as tensors or by rows, checked with labels before training
- `encode`: columns of any kind as a numeric matrix; `column_encoders`: text, categories and dates
- `rows`: training, validation and test rows; repeated rows merged into weights
"""
