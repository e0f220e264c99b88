#!/usr/bin/env bash
# GLUE, SuperGLUE, or a task of your own: files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh SOURCE PRETRAINED OUT [options]
#
# SOURCE holds a folder for each task, as in the archives of GLUE or (with --superglue) SuperGLUE; or it
# is TASKS.yaml, which describes tasks of your own, whose files are beside it (see README.md).
# PRETRAINED is the data-bin folder that the model was pre-trained on: its dictionary, its subwords
# and its treatment of capitals are used here too. OUT/TASK is then what finetune.sh takes.
#
#   --superglue           the folder is that of SuperGLUE
#   --tasks "NAME ..."    of CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE, of SuperGLUE's BoolQ CB RTE
#                         WiC, or of TASKS.yaml (default: those that are there)
#   options of ../common/sentence_tasks.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/sentence_tasks.sh"
TABLE=$RECIPE/tasks.yaml
((!SUPERGLUE)) || TABLE=$RECIPE/superglue.yaml
prepare_tasks bert_pretraining
