#!/usr/bin/env bash
# Long Chinese text: raw text to binarised data, in words (WoBERT, RoFormer) or in characters.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# The work is done by ../clue_pretraining/prepare.sh with --level word (WoBERT and RoFormer; BERT and
# NEZHA have --level character) and --symbols 50000. OUT/data-bin is then what train.sh takes, and
# PRETRAINED of examples/reading/prepare.sh.
#
#   options of ../clue_pretraining/prepare.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
exec "$RECIPE/../clue_pretraining/prepare.sh" --level word --symbols 50000 "${ARGUMENTS[@]}"
