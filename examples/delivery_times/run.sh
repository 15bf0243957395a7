#!/usr/bin/env bash
# When will the food arrive? Intervals that also hold for long deliveries.
# Reads TAILWISE_DATA/tabular/deliveries.csv.gz (10,012 orders; from the modeldata package).
set -euo pipefail
: "${TAILWISE_DATA:?set TAILWISE_DATA to the folder that contains tabular/deliveries.csv.gz}"
TAILWISE_DATA=$(cd "$TAILWISE_DATA" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
PYTHON=${PYTHON:-python}
epochs=${EPOCHS:+--epochs $EPOCHS}

# The last 1,000 orders play the role of tomorrow's orders.
gunzip -c "$TAILWISE_DATA/tabular/deliveries.csv.gz" > all.csv
head -n 9013 all.csv > past.csv
{ head -n 1 all.csv; tail -n 1000 all.csv; } > tomorrow.csv

"$PYTHON" -m tailwise diagnose past.csv --target time_to_delivery
"$PYTHON" -m tailwise fit past.csv --target time_to_delivery --out deliveries.tailwise --report deliveries.html $epochs

# What to tell customers: nine in ten orders arrive between `lower` and `upper`.
"$PYTHON" -m tailwise predict deliveries.tailwise tomorrow.csv --out promises.csv --coverage 0.9 --keep hour,day,distance
head -3 promises.csv

# After the orders have arrived: did the intervals hold, for long deliveries too?
"$PYTHON" -m tailwise evaluate deliveries.tailwise tomorrow.csv --report tomorrow.html
echo "See $PWD/deliveries.html and $PWD/tomorrow.html"
