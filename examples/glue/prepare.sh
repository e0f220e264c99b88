#!/usr/bin/env bash
# GLUE, SuperGLUE, or a task of your own: files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh GLUE_DIR PRETRAINED OUT [options]
#   prepare.sh SUPERGLUE_DIR PRETRAINED OUT --superglue [options]
#   prepare.sh TASKS.yaml PRETRAINED OUT [options]
#
# GLUE_DIR holds a folder for each task, as in the archives of GLUE, SUPERGLUE_DIR as in those of
# SuperGLUE; TASKS.yaml describes tasks of your own, whose files are beside it (see README.md).
# PRETRAINED is the data-bin folder that the model was pre-trained on: its dictionary, its subwords
# and its treatment of capitals are used here too. OUT/TASK is then what finetune.sh takes. If
# interrupted, run it again to resume.
#
#   --superglue           the folder is that of SuperGLUE
#   --tasks "A B ..."     of CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE, of SuperGLUE's BoolQ CB RTE
#                         WiC (those in the folder), or of TASKS.yaml (all)
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

ARGUMENTS=()
for argument in "$@"; do
    case $argument in
        --superglue) TABLE=$RECIPE/superglue.yaml ;;
        *) ARGUMENTS+=("$argument") ;;
    esac
done
prepare_tasks GLUE bert_pretraining ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
