#!/usr/bin/env bash
# GLUE: the original TSV files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh GLUE_DIR PRETRAINED OUT [options]
#
# GLUE_DIR holds a folder for each task, as in the archives of GLUE. PRETRAINED is the
# data-bin folder that the model was pre-trained on: its dictionary, its BPE and its
# treatment of capitals are used here too. OUT/TASK is then what finetune.sh takes.
# Stopped and started again, it goes on where it was.
#
#   --tasks "A B ..."     of CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE (those in GLUE_DIR)
#   --workers N           processes (all cores)
#   --dry-run             print the commands of all steps, run none
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

ALL="CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE"
GLUE="" PRETRAINED="" OUT="" TASKS="" WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --tasks) TASKS=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) die "$1: unknown option; see --help" ;;
        *)
            [[ -z $OUT ]] || die "$1: one folder too many; see --help"
            if [[ -z $GLUE ]]; then GLUE=$1
            elif [[ -z $PRETRAINED ]]; then PRETRAINED=$1
            else OUT=$1; fi
            shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folders of GLUE, of the pre-training's data and of the output"
whole_number --workers "$WORKERS"
for task in $TASKS; do
    [[ " $ALL " == *" $task "* ]] || die "--tasks $task: expected some of $ALL"
    ((DRY_RUN)) || [[ -d $GLUE/$task ]] || die "--tasks $task: there is no folder $GLUE/$task"
done
if [[ -z $TASKS ]]; then
    for task in $ALL; do
        [[ ! -d $GLUE/$task ]] || TASKS+="$task "
    done
    [[ -n $TASKS ]] || die "$GLUE: has no folder of a task ($ALL)"
fi
KEEP_CASE="" TEXT_LANG=en
if ((!DRY_RUN)); then
    for file in dict.txt bpe.codes text; do
        [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/bert_pretraining made"
    done
    TEXT_LANG=$(awk '$1 == "lang" { print $2 }' "$PRETRAINED/text")
    KEEP_CASE=$(awk '$1 == "keep-case" { print $2 }' "$PRETRAINED/text")
fi
export WORKERS
need python fairseq-preprocess
GLUE=$(absolute "$GLUE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")

# Binarise the texts of folder $1 into folder $2; what follows goes to fairseq-preprocess.
preprocess() {
    local texts=$1 folder=$2 valid=$1/valid
    shift 2
    [[ $TASK != MNLI ]] || valid+=,$texts/valid1
    run fairseq-preprocess --only-source --trainpref "$texts/train" --validpref "$valid" \
        --destdir "$folder" --workers "$WORKERS" "$@"
}

binarize() {
    local part=$OUT/$TASK.part input
    run rm -rf "$part"
    for input in "${INPUTS[@]}"; do
        preprocess "$WORK/bpe/$input" "$part/$input" --srcdict "$PRETRAINED/dict.txt"
    done
    if [[ $TASK == STS-B ]]; then
        run mkdir -p "$part/label"
        run cp "$WORK/text/label/train" "$part/label/train.label"
        run cp "$WORK/text/label/valid" "$part/label/valid.label"
    else
        preprocess "$WORK/text/label" "$part/label"
    fi
    ((DRY_RUN)) || wc -l <"$WORK/text/label/train" >"$part/examples"
    run rm -rf "${OUT:?}/$TASK"
    run mv "$part" "$OUT/$TASK"
}

for TASK in $TASKS; do
    WORK=$OUT/work/$TASK STEPS=$OUT/work/$TASK/steps STEP_CHAIN=""
    declare -A FILES=([train]=train [valid]=dev)
    INPUTS=(input0 input1)
    case $TASK in
        CoLA | SST-2) INPUTS=(input0) ;;
        MNLI) FILES[valid]=dev_matched FILES[valid1]=dev_mismatched ;;
    esac
    for split in "${!FILES[@]}"; do
        file=$GLUE/$TASK/${FILES[$split]}.tsv
        if ((!DRY_RUN)); then
            [[ -f $file ]] || die "$file: no such file"
            STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
        fi
    done
    ((DRY_RUN)) || STEP_CHAIN+=$(cat "$PRETRAINED"/{dict.txt,bpe.codes} | sha256sum)$'\n'
    for split in "${!FILES[@]}"; do
        step "extract-$split" python "$RECIPE/tasks.py" extract "$TASK" \
            "$GLUE/$TASK/${FILES[$split]}.tsv" "$WORK/text" "$split" ${KEEP_CASE:+"$KEEP_CASE"}
        for input in "${INPUTS[@]}"; do
            step "tokenize-$split-$input" python "$COMMON/moses.py" tokenize --lang "$TEXT_LANG" \
                "$WORK/text/$input/$split" "$WORK/tokens/$input/$split"
            step "apply-bpe-$split-$input" python "$COMMON/bpe.py" apply "$PRETRAINED/bpe.codes" \
                "$WORK/tokens/$input/$split" "$WORK/bpe/$input/$split"
        done
    done
    step binarize binarize
    unset FILES
done

log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
