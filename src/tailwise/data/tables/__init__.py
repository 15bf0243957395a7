"""Tables: reading and checking them, and turning them into numbers.

- `files`: tables on disk, in and out
- `columns`: what the columns of a table hold
- `checks`: rows and labels checked before training
- `preprocessing`: columns of any kind as a matrix
- `bundled`: the table that comes with the package
"""
