"""Tables: read and check them, and turn them into numbers.

- `files`: read and write tables on disk
- `columns`: what the columns of a table hold
- `checks`: checks of a table and its labels before training
- `preprocessing`: columns of any kind as a numeric matrix; `column_encoders`: text, categories and dates
- `quick_encoding`: the same matrix for one chunk of a large table after another
- `bundled`: the table that comes with the package
"""
