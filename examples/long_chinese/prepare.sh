#!/usr/bin/env bash
# Long Chinese text: raw text to binarised data, in words (WoBERT, RoFormer) or in characters.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# TEXT_DIR holds train.txt, valid.txt and perhaps test.txt, one document a line. jieba finds the words.
# The vocabulary is the most frequent of them, and characters for the others. OUT/data-bin is
# then what train.sh takes, and what examples/reading/prepare.sh needs. If interrupted, run it again
# to resume. Options are those of examples/clue_pretraining/prepare.sh:
#
#   --level LEVEL         word, as WoBERT and RoFormer; character, as BERT and NEZHA (word)
#   --symbols N           symbols in the vocabulary, characters included (50000)
#   --blank-lines         blank lines separate the documents
#   --segmented           words are already separated by spaces (default: segment with jieba)
#   --keep-case           do not lower-case (default: lower case)
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
own_help "$@"
exec "$RECIPE/../clue_pretraining/prepare.sh" --level word --symbols 50000 "$@"
