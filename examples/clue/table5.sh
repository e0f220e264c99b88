#!/usr/bin/env bash
# CLUE: the GAU paper's Table 5, with the settings of its Table 6.
#
#   table5.sh CLUE_DIR PRETRAINED OUT CHECKPOINT... [options] [-- flags for fairseq-train]
#
# CLUE_DIR and PRETRAINED are as for prepare.sh, with the reading tasks in CLUE_DIR/CMRC2018, CHID
# and C3 as for examples/reading/prepare.sh; each CHECKPOINT is a row of the table, named after its
# folder: runs/clue_pretraining/{roformer,roformer_v2,gau}/checkpoint_last.pt. Prepares the data in
# OUT/data, fine-tunes every model on every task in OUT/runs (classification) and OUT/reading, and
# ends with the table.
#
#   --tasks "NAME ..."    of AFQMC CSL IFLYTEK TNEWS WSC CMNLI CMRC2018 CHID C3
#                         (default: those in CLUE_DIR)
#   options of prepare.sh --tokenizer --workers
#   --batch N             examples per update, instead of the paper's
#   options of ../glue/finetune.sh --lr --seeds --epochs --epoch --patience --models
#   options of ../glue/finetune.sh --keep-checkpoints --no-model --cpu --user-dir
#   options of ../common/steps.sh --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
declare -A READING=([CMRC2018]=cmrc [CHID]=chid [C3]=c3) # the names in their recipe
if [[ -z $TASKS ]]; then
    for task in $(fairseq-posenc sentence-task names "$RECIPE/tasks.yaml") CMRC2018 CHID C3; do
        if ((DRY_RUN)) || [[ -d $CLUE_DIR/$task ]]; then TASKS+="$task "; fi
    done
    [[ -n $TASKS ]] || die "$CLUE_DIR: has no folder of a task; see --help"
fi
alone "$OUT"
pass PREPARE --tokenizer --workers --dry-run
pass FINETUNE --lr --seeds --epochs --batch --epoch --cpu --user-dir --dry-run
pass CLASSIFY --patience --models --keep-checkpoints --no-model

SENTENCES=""
for task in $TASKS; do [[ -n ${READING[$task]:-} ]] || SENTENCES+="$task "; done
[[ -z $SENTENCES ]] || "$RECIPE/prepare.sh" "$CLUE_DIR" "$PRETRAINED" "$OUT/data" "${PREPARE[@]}" \
    --tasks "$SENTENCES"
for task in $TASKS; do
    [[ -z ${READING[$task]:-} ]] || "$RECIPE/../reading/prepare.sh" "${READING[$task]}" \
        "$CLUE_DIR/$task" "$PRETRAINED" "$OUT/data" "${PREPARE[@]}"
done
# The table that each finetune.sh prints is for the last one to show.
for model in "${CHECKPOINT[@]}"; do
    for task in $TASKS; do
        if [[ -n ${READING[$task]:-} ]]; then
            "$RECIPE/../reading/finetune.sh" "$OUT/data/${READING[$task]}" "$model" "$OUT/reading" \
                "${FINETUNE[@]}" -- "${EXTRA[@]}"
        else
            "$RECIPE/finetune.sh" "$OUT/data/$task" "$model" "$OUT/runs" "${FINETUNE[@]}" \
                "${CLASSIFY[@]}" -- "${EXTRA[@]}"
        fi
    done
done >&$((2 - DRY_RUN))
run fairseq-posenc script "$COMMON/scores.py" --paper gau --epoch "$EPOCH" \
    --reading "$OUT/reading" "$OUT/runs"
