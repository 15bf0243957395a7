"""A package, so that ranks find their code before any other package of this name."""
