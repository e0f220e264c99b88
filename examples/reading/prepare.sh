#!/usr/bin/env bash
# Reading comprehension: published files to binarised data, for spans and for multiple choice.
#
#   prepare.sh TASK SOURCE PRETRAINED OUT [options]
#
# TASK is squad (1.1 or 2.0) or cmrc, whose answers are spans of a passage, or race, c3, chid, copa,
# qnli (which sentence answers?) or cail (CAIL2019-SCM), with choices. SOURCE is the folder with its
# files as they were published (see README.md). PRETRAINED and OUT are as for ../glue/prepare.sh.
#
#   --train FILE          of squad and cmrc, a file with another name than the published
#   --valid FILE          likewise
#   --test FILE           likewise
#   --leave-out-wrong     leave out training questions whose answer is not where the file says
#   --longest-choice N    symbols of a question with its answer; longer ones lose their beginning
#                         (default: 128, as in RoBERTa; of cail none)
#   options of ../common/sentence_tasks.sh

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/sentence_tasks.sh"
# Choices are read by READER; in a dry run, there are MOST of them.
READER=(choices.py extract "$TASK") MOST=4 MADE_BY=bert_pretraining
case $TASK in
    squad | race | qnli) ;;
    copa) MOST=2 ;;
    cmrc | c3 | chid) MADE_BY=clue_pretraining ;;
    cail) READER=(cail.py) MOST=2 MADE_BY=clue_pretraining LONGEST_CHOICE=${LONGEST_CHOICE:-1000000} ;;
    *) die "$TASK: no such task; expected squad, cmrc, race, c3, chid, copa, qnli or cail" ;;
esac
need "$SOURCE/" "$SOURCE: no such folder"
use_pretrained "$MADE_BY"
WORK=$OUT/work/$TASK

# The file that is given, or else the first of the names $2... in SOURCE; in a dry run, $2.
published() {
    local given=$1 name
    shift
    for name in ${given:+"$(absolute "$given")"} "${@/#/$SOURCE/}"; do
        [[ ! -f $name && $name != "$given" ]] || { printf '%s' "$name"; return; }
    done
    ((!DRY_RUN)) || printf '%s' "$SOURCE/$1"
}

spans() {
    local split found flags=()
    for split in train valid test; do
        case $split in
            train) found=$(published "$TRAIN" {train-v2.0,train-v1.1,cmrc2018_train,train}.json) ;;
            valid) found=$(published "$VALID" {dev-v2.0,dev-v1.1,cmrc2018_dev,dev}.json) ;;
            test) found=$(DRY_RUN=0 published "$TEST" test.json) ;;
        esac
        [[ -n $found || $split == test ]] ||
            die "$SOURCE: no file of questions there; give --train and --valid"
        [[ -z $found ]] || flags+=("--$split" "<$found")
    done
    ((!LEAVE_OUT_WRONG)) || flags+=(--leave-out-wrong)
    step "$TASK-prepare" --inputs "${SPLIT_BY[@]}" --replaces "$OUT/$TASK" --known-by reading.json \
        --option OUT -- fairseq-posenc reading prepare "$(part "$OUT/$TASK")" \
        --dict "<$PRETRAINED/dict.txt" "${flags[@]}" --rules "$TASK" "${TEXT_FLAGS[@]}"
    ((DRY_RUN)) || echo "$TASK" >"$OUT/$TASK/task"
}

choices() {
    local INPUTS SPLITS=(train valid)
    check_output "$TASK" examples "$SOURCE"
    step "$TASK-extract" -- \
        fairseq-posenc script "$RECIPE/${READER[0]}" "${READER[@]:1}" "<$SOURCE" ">$WORK/text"
    if ((!DRY_RUN)); then
        MOST=$(<"$WORK/text/choices")
        read -ra SPLITS <"$WORK/text/splits"
    fi
    mapfile -t INPUTS < <(seq -f 'input%g' 0 "$MOST")
    split_texts "$TASK" "$WORK"
    step "$TASK-cut" -- fairseq-posenc script "$RECIPE/choices.py" cut \
        "<$WORK/text" "<$WORK/pieces" ">$WORK/cut" --longest "${LONGEST_CHOICE:-128}"
    binarize_task "$TASK" "$WORK/cut" "$WORK/text" numbers "$WORK/text/task"
}

case $TASK in squad | cmrc) spans ;; *) choices ;; esac
log "data for finetune.sh: $OUT/$TASK"
