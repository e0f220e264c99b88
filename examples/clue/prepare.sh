#!/usr/bin/env bash
# CLUE, or a task of your own: text to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh SOURCE PRETRAINED OUT [options]
#
# SOURCE holds a folder for each task with train.json and dev.json as in CLUE's archives, or train.tsv
# and dev.tsv: tab-separated sentences and label. Or it is TASKS.yaml, which describes tasks of your
# own, whose files are beside it (see ../glue/README.md). PRETRAINED is the data-bin folder that the
# model was pre-trained on (examples/clue_pretraining): its dictionary, its BPE and its segmentation
# are used here too. OUT/TASK is then what finetune.sh takes. If interrupted, run it again to resume.
#
#   --tasks "NAME ..."    of AFQMC CSL IFLYTEK TNEWS WSC CMNLI, or of TASKS.yaml
#                         (default: those that are there)
#   options of ../common/sentence_tasks.sh

set -euo pipefail
# shellcheck source=../common/steps.sh
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
# shellcheck source=../common/sentence_tasks.sh
. "$COMMON/sentence_tasks.sh"
TABLE=$RECIPE/tasks.yaml
prepare_tasks clue_pretraining
