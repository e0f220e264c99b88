#!/usr/bin/env bash
# WMT14 English-German: average checkpoints, translate newstest2014, print the scores.
#
#   evaluate.sh DATA SAVE_DIR [options] [-- flags for fairseq-generate]
#
# DATA is the data-bin folder of prepare.sh, SAVE_DIR where train.sh put its checkpoints.
# Translations, scores.txt and scores.json go to SAVE_DIR/evaluate-test, a model folder for
# raw text to SAVE_DIR/model. The work is done by ../translation/evaluate.sh with --average-by updates
# and --compound-split. The Transformer paper's big model has --average 20.
#
#   options of ../translation/evaluate.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
exec "$RECIPE/../translation/evaluate.sh" --average-by updates --compound-split \
    --about "WMT14 English-German." "${ARGUMENTS[@]}"
