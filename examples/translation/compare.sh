#!/usr/bin/env bash
# Translation: compare systems with the first by sacreBLEU's paired tests.
#
#   compare.sh BASELINE SYSTEM... [options]
#
# Each is a folder that evaluate.sh wrote (its --results). Prints BLEU, chrF and TER with 95 %
# intervals, and the p-values of paired bootstrap resampling and of approximate randomisation.
#
#   --output DIR          also write compare.txt, compare.md (Markdown) and compare.json there
#   --seed N              seed of both tests (default: sacreBLEU's 12345)
#   --samples N           samples of the bootstrap (default: 1000)
#   --trials N            trials of the randomisation (default: 10000)
#   --dry-run             print the command without running it
#   --help                this text

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
pass OPTIONS --output --seed --samples --trials
run fairseq-posenc script "$COMMON/compare.py" "${OPTIONS[@]}" "$BASELINE" "${SYSTEM[@]}"
