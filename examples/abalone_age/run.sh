#!/usr/bin/env bash
# How old is an abalone? From a CSV to a report, without writing code. Needs only tailwise.
set -euo pipefail
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
PYTHON=${PYTHON:-python}
epochs=${EPOCHS:+--epochs $EPOCHS}

# Write the bundled table as a CSV: eight measurements and the number of rings.
"$PYTHON" -c 'from tailwise.data import load_abalone; load_abalone().to_csv("abalone.csv", index=False)'

# Are the labels imbalanced enough to act on?
"$PYTHON" -m tailwise diagnose abalone.csv --target Rings --plot labels.png

# Train, measure on test rows, compare with a plain network and boosted trees, write the page.
"$PYTHON" -m tailwise fit abalone.csv --target Rings --out abalone.tailwise --report abalone.html $epochs

# Predict, with an interval for every animal.
"$PYTHON" -m tailwise predict abalone.tailwise abalone.csv --out ages.csv --keep Sex
head -3 ages.csv
echo "See $PWD/abalone.html"
