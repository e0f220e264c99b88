#!/usr/bin/env bash
# CLUE: the classification tasks of the GAU paper's Table 5, with the settings of its Table 6.
#
#   table5.sh CLUE_DIR PRETRAINED OUT CHECKPOINT... [options] [-- flags for fairseq-train]
#
# CLUE_DIR and PRETRAINED are as for prepare.sh; each CHECKPOINT is a row of the table, named after
# its folder: runs/clue_pretraining/{roformer,roformer_v2,gau}/checkpoint_last.pt. Prepares the data
# in OUT/data, fine-tunes every model on every task in OUT/runs, and ends with the table. Stopped
# and started again, it goes on with what is not done. The reading tasks of the table are those of
# examples/reading.
#
#   --tasks "A B ..."     of AFQMC CSL IFLYTEK TNEWS WSC CMNLI (those in CLUE_DIR)
#   --tokenizer FOLDER    as for prepare.sh
#   --workers N           worker processes for the data (all cores)
#   --dry-run             print the commands without running them
#   --help                this text
#
# All other options are those of finetune.sh (--seeds, --epoch, --cpu, --keep-checkpoints, --no-model),
# without --name and --from.

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

own_help "$@"
FOLDERS=() PREPARE=() FINETUNE=() TASKS=""
while (($#)); do
    case $1 in
        --dry-run) DRY_RUN=1; PREPARE+=("$1"); FINETUNE+=("$1"); shift ;;
        --tasks) TASKS=$(value "$@"); PREPARE+=("$1" "$TASKS"); shift 2 ;;
        --tokenizer | --workers) PREPARE+=("$1" "$(value "$@")"); shift 2 ;;
        --cpu | --keep-checkpoints | --no-model) FINETUNE+=("$1"); shift ;;
        --name | --from) die "$1: has no effect here; rows are named after the checkpoints" ;;
        --) FINETUNE+=("$@"); break ;;
        --*) FINETUNE+=("$1" "$(value "$@")"); shift 2 ;;
        *) FOLDERS+=("$1"); shift ;;
    esac
done
((${#FOLDERS[@]} >= 4)) ||
    die "give the folders of CLUE, of the pre-training's data and of the output, and checkpoints"
CLUE=${FOLDERS[0]} PRETRAINED=${FOLDERS[1]} OUT=${FOLDERS[2]}
need python
if [[ -z $TASKS ]]; then
    for task in $(python "$COMMON/tasks.py" names "$RECIPE/tasks.yaml"); do
        if ((DRY_RUN)) || [[ -d $CLUE/$task ]]; then TASKS+="$task "; fi
    done
    PREPARE+=(--tasks "$TASKS")
fi
interruptible "$RECIPE/prepare.sh" "$CLUE" "$PRETRAINED" "$OUT/data" "${PREPARE[@]}" || exit
for checkpoint in "${FOLDERS[@]:3}"; do
    for task in $TASKS; do
        # The table that each prints is for the last one to show.
        interruptible "$RECIPE/finetune.sh" "$OUT/data/$task" "$checkpoint" "$OUT/runs" \
            ${FINETUNE[@]+"${FINETUNE[@]}"} >&$((2 - DRY_RUN)) || exit
    done
done
run python "$COMMON/scores.py" --paper gau "$OUT/runs"
