#!/usr/bin/env bash
# Long Chinese text: raw text to binarised data, in words (WoBERT, RoFormer) or in characters.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# TEXT_DIR holds train.txt, valid.txt and perhaps test.txt, one document a line. jieba finds the words.
# The vocabulary is the most frequent of them, and characters for the others. OUT/data-bin is
# then what train.sh takes, and what examples/reading/prepare.sh needs. If interrupted, run it again
# to resume. The work is done by ../clue_pretraining/prepare.sh with --level word (WoBERT and RoFormer;
# BERT and NEZHA have --level character) and --symbols 50000.
#
#   options of ../clue_pretraining/prepare.sh

set -euo pipefail
# shellcheck source=../common/steps.sh
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
exec "$RECIPE/../clue_pretraining/prepare.sh" --level word --symbols 50000 "${ARGUMENTS[@]}"
