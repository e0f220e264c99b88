#!/usr/bin/env bash
# Reading comprehension: published files to binarised data, for spans and for multiple choice.
#
#   prepare.sh TASK SOURCE PRETRAINED OUT [options]
#
# TASK is squad (1.1 or 2.0) or cmrc, whose answers are spans of a passage, or race, c3, chid, copa,
# qnli (which sentence answers?) or cail (CAIL2019-SCM), with choices. SOURCE is the folder with its
# files as they were published (see README.md).
# PRETRAINED is the data-bin folder that the model was pre-trained on: its dictionary, its subwords
# and its treatment of capitals are used here too. OUT/TASK is then what finetune.sh takes. If
# interrupted, run it again to resume.
#
#   --train FILE, --valid FILE, --test FILE
#                         of squad and cmrc, files with other names than the published
#   --leave-out-wrong     leave out training questions whose answer is not where the file says
#   --longest-choice N    symbols of a question with its answer; longer ones lose their beginning
#                         (128, as in RoBERTa; of cail none)
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
. "$COMMON/sentence_tasks.sh"

TASK="" SOURCE="" PRETRAINED="" OUT="" TRAIN="" VALID_FILE="" TEST_FILE="" LEAVE_OUT=""
LONGEST="" TOKENIZER="" WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --train) TRAIN=$(value "$@"); shift 2 ;;
        --valid) VALID_FILE=$(value "$@"); shift 2 ;;
        --test) TEST_FILE=$(value "$@"); shift 2 ;;
        --leave-out-wrong) LEAVE_OUT=$1; shift ;;
        --longest-choice) LONGEST=$(value "$@"); shift 2 ;;
        --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" TASK SOURCE PRETRAINED OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the task and the folders of its files, of the pre-training's data and" \
    "of the output; see --help"
[[ " squad cmrc race c3 chid copa qnli cail " == *" $TASK "* ]] ||
    die "$TASK: no such task; expected squad, cmrc, race, c3, chid, copa, qnli or cail"
READER=(choices.py extract "$TASK") MOST=4
[[ $TASK != copa ]] || MOST=2
[[ $TASK != cail ]] || READER=(cail.py extract) MOST=2 LONGEST=${LONGEST:-1000000}
LONGEST=${LONGEST:-128}
whole_number --longest-choice "$LONGEST"
whole_number --workers "$WORKERS"
need python fairseq-preprocess
((DRY_RUN)) || [[ -d $SOURCE ]] || die "$SOURCE: no such folder"
PRETRAINING=bert_pretraining # the recipe that makes PRETRAINED
[[ $TASK != c* || $TASK == copa ]] || PRETRAINING=clue_pretraining
read_pretrained "$PRETRAINING"
WORK=$OUT/work/$TASK STEPS=$OUT/work/$TASK/steps
[[ -z $TOKENIZER ]] || check_symbols

# The first of the files $2... in SOURCE; $1 is its name otherwise, or empty.
published() {
    local given=$1 name
    shift
    if [[ -n $given ]]; then
        absolute "$given"
        return
    fi
    for name in "$@"; do
        [[ ! -f $SOURCE/$name ]] || { printf '%s' "$SOURCE/$name"; return; }
    done
    ((!DRY_RUN)) || printf '%s' "$SOURCE/$1"
}

prepare_spans() {
    local part=$OUT/$TASK.part flags=(--train "$TRAIN" --valid "$VALID_FILE")
    [[ -z $TEST_FILE ]] || flags+=(--test "$TEST_FILE")
    run rm -rf "$part"
    run fairseq-posenc reading prepare "$part" --dict "$PRETRAINED/dict.txt" "${flags[@]}" \
        --rules "$TASK" ${LEAVE_OUT:+"$LEAVE_OUT"} ${TEXT_FLAGS[@]+"${TEXT_FLAGS[@]}"}
    ((DRY_RUN)) || echo "$TASK" >"$part/task"
    replace_folder "$part" "$OUT/$TASK"
}

spans() {
    local file
    TRAIN=$(published "$TRAIN" train-v2.0.json train-v1.1.json cmrc2018_train.json train.json)
    VALID_FILE=$(published "$VALID_FILE" dev-v2.0.json dev-v1.1.json cmrc2018_dev.json dev.json)
    TEST_FILE=$(DRY_RUN=0 published "$TEST_FILE" test.json)
    for file in "$TRAIN" "$VALID_FILE"; do
        [[ -n $file ]] || die "$SOURCE: no file of questions there; give --train and --valid"
        ((DRY_RUN)) || [[ -f $file ]] || die "$file: no such file"
    done
    check_output "$TASK" task "$SOURCE" "$TRAIN" "$VALID_FILE" ${TEST_FILE:+"$TEST_FILE"}
    if [[ -n $TOKENIZER ]]; then
        TEXT_FLAGS=(--subwords transformers --subword-file "$TOKENIZER")
    else
        text_flags "$PRETRAINED"
    fi
    chain ""
    ((DRY_RUN)) || STEP_CHAIN+=$(cat "$TRAIN" "$VALID_FILE" ${TEST_FILE:+"$TEST_FILE"} | sha256sum)$(splitting)$'\n'
    step prepare "$OUT/$TASK"/{dict.txt,reading.json,task,{train,valid}.passage.idx} -- \
        prepare_spans "${LEAVE_OUT:-all questions}"
}

# Binarise the texts in symbols.
binarize_choices() {
    local WORK=$WORK/cut split
    run mkdir -p "$WORK/text"
    for split in train "${VALID[@]}"; do
        run mkdir -p "$WORK/text/label"
        run cp "$OUT/work/$TASK/text/label/$split" "$WORK/text/label/$split"
    done
    binarize "$TASK" numbers
    ((DRY_RUN)) || echo "$TASK $((${#INPUTS[@]} - 1))" >"$OUT/$TASK/task"
}

choices() {
    local most=$MOST splits="train valid" split input outputs=() INPUTS=() VALID=() TEST=()
    check_output "$TASK" examples "$SOURCE"
    chain "$TASK"$'\n'
    ((DRY_RUN)) || STEP_CHAIN+=$(find "$SOURCE" -type f -print0 | sort -z | xargs -0 cat | sha256sum)$(splitting)$'\n'
    step extract "$WORK/text"/{choices,splits,input0/train,label/valid} -- \
        python "$RECIPE/${READER[0]}" "${READER[@]:1}" "$SOURCE" "$WORK/text"
    if ((!DRY_RUN)); then
        most=$(<"$WORK/text/choices") splits=$(<"$WORK/text/splits")
    fi
    for ((input = 0; input <= most; input++)); do INPUTS+=("input$input"); done
    for split in $splits; do
        [[ $split == train ]] || VALID+=("$split")
        for input in "${INPUTS[@]}"; do
            split_text "$split" "$input" "$PRETRAINING"
            outputs+=("$OUT/$TASK/$input/$split".{bin,idx})
        done
    done
    step cut "$WORK/cut/pieces/input$most/valid" -- python "$RECIPE/choices.py" cut \
        "$WORK/text" "$WORK/pieces" "$WORK/cut/pieces" --longest "$LONGEST"
    step binarize "${outputs[@]}" "$OUT/$TASK/task" -- binarize_choices
}

case $TASK in squad | cmrc) spans ;; *) choices ;; esac
log "data for finetune.sh: $OUT/$TASK"
