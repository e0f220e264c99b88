#!/usr/bin/env bash
# Translation: compare systems with the first by sacreBLEU's paired tests.
#
#   compare.sh BASELINE SYSTEM [SYSTEM...] [options]
#
# Each is a folder that evaluate.sh wrote (its --results). Prints BLEU, chrF and TER with 95 %
# intervals, and the p-values of paired bootstrap resampling and of approximate randomisation.
#
#   --output DIR          also write compare.txt, compare.md (Markdown) and compare.json there
#   --seed N              seed of both tests (12345, sacreBLEU's)
#   --samples N           samples of the bootstrap (1000)
#   --trials N            trials of the randomisation (10000)
#   --dry-run             print the command without running it
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

OPTIONS=() SYSTEMS=()
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --seed | --samples | --trials)
            whole_number "$1" "$(value "$@")"
            OPTIONS+=("$1" "$2"); shift 2 ;;
        --output) OPTIONS+=("$1" "$(value "$@")"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) SYSTEMS+=("$1"); shift ;;
    esac
done
((${#SYSTEMS[@]} >= 2)) || die "give the folders of two systems or more; see --help"
need python
run python "$COMMON/compare.py" ${OPTIONS[@]+"${OPTIONS[@]}"} "${SYSTEMS[@]}"
