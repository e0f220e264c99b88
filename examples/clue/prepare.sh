#!/usr/bin/env bash
# CLUE, or a task of your own: text to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh CLUE_DIR PRETRAINED OUT [options]
#   prepare.sh TASKS.yaml PRETRAINED OUT [options]
#
# CLUE_DIR holds a folder for each task with train.json and dev.json as in CLUE's archives,
# or train.tsv and dev.tsv: tab-separated sentences and label. TASKS.yaml describes tasks of your
# own, whose files are beside it (see ../glue/README.md). PRETRAINED is the data-bin folder that the
# model was pre-trained on (examples/clue_pretraining): its dictionary, its BPE and its segmentation
# are used here too. OUT/TASK is then what finetune.sh takes. If interrupted, run it again to resume.
#
#   --tasks "A B ..."     of AFQMC CSL IFLYTEK TNEWS WSC CMNLI (those in CLUE_DIR), or of
#                         TASKS.yaml (all)
#   --tokenizer FOLDER    split the texts as this tokenizer of transformers does; PRETRAINED is
#                         then the folder of an imported model
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/sentence_tasks.sh
. "$RECIPE/../common/sentence_tasks.sh"

prepare_tasks CLUE clue_pretraining "$@"
