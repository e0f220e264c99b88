#!/usr/bin/env bash
# CLUE: the GAU paper's Table 5, with the settings of its Table 6.
#
#   table5.sh CLUE_DIR PRETRAINED OUT CHECKPOINT... [options] [-- flags for fairseq-train]
#
# CLUE_DIR and PRETRAINED are as for prepare.sh, with the reading tasks in CLUE_DIR/CMRC2018, CHID
# and C3 as for examples/reading/prepare.sh; each CHECKPOINT is a row of the table, named after its
# folder: runs/clue_pretraining/{roformer,roformer_v2,gau}/checkpoint_last.pt. Prepares the data in
# OUT/data, fine-tunes every model on every task in OUT/runs (classification) and OUT/reading, and
# ends with the table. Stopped and started again, it goes on with what is not done.
#
#   --tasks "A B ..."     of AFQMC CSL IFLYTEK TNEWS WSC CMNLI CMRC2018 CHID C3 (those in CLUE_DIR)
#   --tokenizer FOLDER    as for prepare.sh
#   --workers N           worker processes for the data (all cores)
#   --dry-run             print the commands without running them
#   --help                this text
#
# All other options are those of finetune.sh (--seeds, --epoch, --cpu, --keep-checkpoints, --no-model),
# without --name and --from; the last two, and --patience and --models, are for the classification
# tasks only.

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

own_help "$@"
READING=$RECIPE/../reading EPOCH=best
READING_TASKS=(CMRC2018 CHID C3)
# For both finetune.sh, for that of classification, for fairseq-train.
FOLDERS=() PREPARE=() FINETUNE=() CLASSIFY=() FLAGS=() TASKS=""
while (($#)); do
    case $1 in
        --dry-run) DRY_RUN=1; PREPARE+=("$1"); FINETUNE+=("$1"); shift ;;
        --tasks) TASKS=$(value "$@"); shift 2 ;;
        --tokenizer | --workers) PREPARE+=("$1" "$(value "$@")"); shift 2 ;;
        --cpu) FINETUNE+=("$1"); shift ;;
        --keep-checkpoints | --no-model) CLASSIFY+=("$1"); shift ;;
        --patience | --models) CLASSIFY+=("$1" "$(value "$@")"); shift 2 ;;
        --name | --from) die "$1: has no effect here; rows are named after the checkpoints" ;;
        --epoch) EPOCH=$(value "$@"); FINETUNE+=("$1" "$EPOCH"); shift 2 ;;
        --) FLAGS=("$@"); break ;;
        --*) FINETUNE+=("$1" "$(value "$@")"); shift 2 ;;
        *) FOLDERS+=("$1"); shift ;;
    esac
done
((${#FOLDERS[@]} >= 4)) ||
    die "give the folders of CLUE, of the pre-training's data and of the output, and checkpoints"
CLUE=${FOLDERS[0]} PRETRAINED=${FOLDERS[1]} OUT=${FOLDERS[2]}
need python
if [[ -z $TASKS ]]; then
    for task in $(python "$COMMON/tasks.py" names "$RECIPE/tasks.yaml") "${READING_TASKS[@]}"; do
        if ((DRY_RUN)) || [[ -d $CLUE/$task ]]; then TASKS+="$task "; fi
    done
    [[ -n $TASKS ]] || die "$CLUE: has no folder of a task; see --help"
fi
SENTENCES="" TO_READ=()
for task in $TASKS; do
    if [[ " ${READING_TASKS[*]} " == *" $task "* ]]; then TO_READ+=("$task"); else SENTENCES+="$task "; fi
done
[[ -z $SENTENCES ]] || interruptible "$RECIPE/prepare.sh" "$CLUE" "$PRETRAINED" "$OUT/data" \
    ${PREPARE[@]+"${PREPARE[@]}"} --tasks "$SENTENCES" || exit

# The name of a reading task in its recipe: cmrc, chid, c3.
reading_name() {
    printf '%s' "${1%2018}" | tr '[:upper:]' '[:lower:]'
}

for task in ${TO_READ[@]+"${TO_READ[@]}"}; do
    interruptible "$READING/prepare.sh" "$(reading_name "$task")" "$CLUE/$task" "$PRETRAINED" \
        "$OUT/data" ${PREPARE[@]+"${PREPARE[@]}"} || exit
done
# The table that each finetune.sh prints is for the last one to show.
for checkpoint in "${FOLDERS[@]:3}"; do
    for task in $SENTENCES; do
        interruptible "$RECIPE/finetune.sh" "$OUT/data/$task" "$checkpoint" "$OUT/runs" \
            ${FINETUNE[@]+"${FINETUNE[@]}"} ${CLASSIFY[@]+"${CLASSIFY[@]}"} \
            ${FLAGS[@]+"${FLAGS[@]}"} >&$((2 - DRY_RUN)) || exit
    done
    for task in ${TO_READ[@]+"${TO_READ[@]}"}; do
        interruptible "$READING/finetune.sh" "$OUT/data/$(reading_name "$task")" "$checkpoint" \
            "$OUT/reading" ${FINETUNE[@]+"${FINETUNE[@]}"} ${FLAGS[@]+"${FLAGS[@]}"} \
            >&$((2 - DRY_RUN)) || exit
    done
done
run python "$COMMON/scores.py" --paper gau --epoch "$EPOCH" --reading "$OUT/reading" "$OUT/runs"
