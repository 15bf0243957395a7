#!/usr/bin/env bash
# What does a room cost? A table with text, dates and hundreds of categories, without preparation.
# Reads TAILWISE_DATA/tabular/hotel_rates.csv.gz (15,402 bookings; Antonio et al. 2019).
set -euo pipefail
: "${TAILWISE_DATA:?set TAILWISE_DATA to the folder that contains tabular/hotel_rates.csv.gz}"
TAILWISE_DATA=$(cd "$TAILWISE_DATA" && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
PYTHON=${PYTHON:-python}
epochs=${EPOCHS:+--epochs $EPOCHS}
table=$TAILWISE_DATA/tabular/hotel_rates.csv.gz

"$PYTHON" -m tailwise diagnose "$table" --target avg_price_per_room

# What is gained for expensive rooms over boosted trees? Several seeds show which differences exceed chance.
"$PYTHON" -m tailwise compare "$table" --target avg_price_per_room --methods catboost,tail \
  --seeds "${SEEDS:-3}" --out results.jsonl --report methods.html $epochs

"$PYTHON" -m tailwise fit "$table" --target avg_price_per_room --out hotel.tailwise --report hotel.html $epochs
echo "See $PWD/methods.html and $PWD/hotel.html"
