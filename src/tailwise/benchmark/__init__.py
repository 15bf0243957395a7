"""Methods x data sets x seeds under one recipe, with error bars."""
