#!/usr/bin/env bash
# Pictures of the report for the documentation: the first screen of the page of the abalone story on a desktop, and on
# a phone in dark mode.
set -euo pipefail
out=$(cd "${1:?name the output folder}" && pwd)
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "Chromium not found: install it (package chromium on Debian)" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$(dirname "$0")/abalone_age/run.sh" "$work"

# Arguments: file, page, window size, colour scheme (0 is dark, 1 is light). 64 colours make the files small.
shoot() {
  "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --window-size="$3" --blink-settings=preferredColorScheme="$4" --screenshot="$work/$1" \
    "file://$work/$2.html" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
  "${PYTHON:-python}" -c 'import sys; from PIL import Image
Image.open(sys.argv[1]).convert("RGB").quantize(64, dither=0).save(sys.argv[2], optimize=True)' "$work/$1" "$out/$1"
}
shoot report.png abalone 1280,800 1
shoot report-phone.png abalone 390,1300 0
