#!/usr/bin/env bash
# Pictures of the report for the documentation: the first screen of the page of the abalone story and its section on
# columns, on a desktop, and on a phone in dark mode.
set -euo pipefail
out=$(cd "${1:?name the output folder}" && pwd)
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "Chromium not found: install it (package chromium on Debian)" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$(dirname "$0")/abalone_age/run.sh" "$work"

# Arguments: file, window size, colour scheme (0 is dark, 1 is light), part of the page.
shoot() {
  "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --window-size="$2" --blink-settings=preferredColorScheme="$3" --screenshot="$out/$1" \
    "file://$work/abalone.html${4:-}" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
}
shoot report.png 1280,800 1
shoot report-phone.png 390,1300 0
shoot report-columns.png 1280,800 1 '#columns'
shoot report-columns-phone.png 390,1300 0 '#columns'
