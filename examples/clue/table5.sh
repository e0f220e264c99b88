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
#   --tasks "NAME ..."    of AFQMC CSL IFLYTEK TNEWS WSC CMNLI CMRC2018 CHID C3
#                         (default: those in CLUE_DIR)
#   --tokenizer FOLDER    as for prepare.sh
#   --workers N           worker processes for the data (default: all cores)
#   --lr "X ..."          as for finetune.sh, like the following ones
#   --seeds "N ..."       as there
#   --epochs N            as there
#   --batch N             as there
#   --epoch best|last     as there (best)
#   --patience N          as there, for the classification tasks only, like the following three
#   --models N            as there
#   --keep-checkpoints    as there
#   --no-model            as there
#   --cpu                 without GPU or fp16
#   --user-dir DIR        the plug-in (default: fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
parse "$@"
READING=$RECIPE/../reading READING_TASKS="CMRC2018 CHID C3"
if [[ -z $TASKS ]]; then
    for task in $(fairseq-posenc sentence-task names "$RECIPE/tasks.yaml") $READING_TASKS; do
        if ((DRY_RUN)) || [[ -d $CLUE_DIR/$task ]]; then TASKS+="$task "; fi
    done
    [[ -n $TASKS ]] || die "$CLUE_DIR: has no folder of a task; see --help"
fi
alone "$OUT"
pass PREPARE --tokenizer --workers --dry-run
pass FINETUNE --lr --seeds --epochs --batch --epoch --cpu --user-dir --dry-run
pass CLASSIFY --patience --models --keep-checkpoints --no-model
FLAGS=()
((!${#EXTRA[@]})) || FLAGS=(-- "${EXTRA[@]}")

SENTENCES="" TO_READ=""
for task in $TASKS; do
    if [[ " $READING_TASKS " == *" $task "* ]]; then TO_READ+="$task "; else SENTENCES+="$task "; fi
done
# The name of a reading task in its recipe: cmrc, chid, c3.
reading_name() {
    tr '[:upper:]' '[:lower:]' <<<"${1%2018}"
}
[[ -z $SENTENCES ]] || "$RECIPE/prepare.sh" "$CLUE_DIR" "$PRETRAINED" "$OUT/data" "${PREPARE[@]}" \
    --tasks "$SENTENCES"
for task in $TO_READ; do
    "$READING/prepare.sh" "$(reading_name "$task")" "$CLUE_DIR/$task" "$PRETRAINED" "$OUT/data" \
        "${PREPARE[@]}"
done
# The table that each finetune.sh prints is for the last one to show.
for model in "${CHECKPOINT[@]}"; do
    for task in $SENTENCES; do
        "$RECIPE/finetune.sh" "$OUT/data/$task" "$model" "$OUT/runs" "${FINETUNE[@]}" \
            "${CLASSIFY[@]}" "${FLAGS[@]}"
    done
    for task in $TO_READ; do
        "$READING/finetune.sh" "$OUT/data/$(reading_name "$task")" "$model" "$OUT/reading" \
            "${FINETUNE[@]}" "${FLAGS[@]}"
    done
done >&$((2 - DRY_RUN))
run fairseq-posenc script "$COMMON/scores.py" --paper gau --epoch "$EPOCH" \
    --reading "$OUT/reading" "$OUT/runs"
