#!/usr/bin/env bash
# When will the food be there? A promise that holds for long deliveries too.
# Reads TAILWISE_DATA/tabular/deliveries.csv.gz (10,012 orders; from the modeldata package).
set -euo pipefail
: "${TAILWISE_DATA:?set TAILWISE_DATA to the folder that holds tabular/deliveries.csv.gz}"
TAILWISE_DATA=$(cd "$TAILWISE_DATA" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
PYTHON=${PYTHON:-python}
epochs=${EPOCHS:+--epochs $EPOCHS}

# The last 1,000 orders stand for tomorrow's.
gunzip -c "$TAILWISE_DATA/tabular/deliveries.csv.gz" > all.csv
head -n 9013 all.csv > past.csv
{ head -n 1 all.csv; tail -n 1000 all.csv; } > tomorrow.csv

"$PYTHON" -m tailwise diagnose past.csv --target time_to_delivery
"$PYTHON" -m tailwise fit past.csv --target time_to_delivery --out deliveries.tailwise --report deliveries.html $epochs

# What to tell each customer: nine in ten orders arrive between `lower` and `upper`.
"$PYTHON" -m tailwise predict deliveries.tailwise tomorrow.csv --out promises.csv --coverage 0.9 --keep hour,day,distance
head -3 promises.csv

# Once they have arrived: did it hold, for the long ones as well?
"$PYTHON" -m tailwise evaluate deliveries.tailwise tomorrow.csv --report tomorrow.html
echo "See $PWD/deliveries.html and $PWD/tomorrow.html"
