#!/usr/bin/env bash
# CLUE, or a task of your own: text to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh SOURCE PRETRAINED OUT [options]
#
# SOURCE holds a folder for each task with train.json and dev.json as in CLUE's archives, or train.tsv
# and dev.tsv: tab-separated sentences and label. TASKS.yaml, PRETRAINED (of examples/clue_pretraining)
# and OUT are as for ../glue/prepare.sh.
#
#   --tasks "NAME ..."    of AFQMC CSL IFLYTEK TNEWS WSC CMNLI, or of TASKS.yaml
#                         (default: those that are there)
#   options of ../common/sentence_tasks.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/sentence_tasks.sh"
TABLE=$RECIPE/tasks.yaml
prepare_tasks clue_pretraining
