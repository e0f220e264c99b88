#!/usr/bin/env bash
# GLUE: the original TSV files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh GLUE_DIR PRETRAINED OUT [options]
#
# GLUE_DIR holds a folder for each task, as in the archives of GLUE. PRETRAINED is the
# data-bin folder that the model was pre-trained on: its dictionary, its BPE and its
# treatment of capitals are used here too. OUT/TASK is then what finetune.sh takes.
# If interrupted, run it again to resume.
#
#   --tasks "A B ..."     of CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE (those in GLUE_DIR)
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

sentence_options GLUE "CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE" bert_pretraining "$@"
KEEP_CASE="" TEXT_LANG=en
if [[ -n $TOKENIZER ]]; then
    KEEP_CASE=--keep-case # the tokenizer lower-cases where the model was trained on lower case
elif ((!DRY_RUN)); then
    TEXT_LANG=$(awk '$1 == "lang" { print $2 }' "$PRETRAINED/text")
    KEEP_CASE=$(awk '$1 == "keep-case" { print $2 }' "$PRETRAINED/text")
fi

[[ -z $TOKENIZER ]] || check_symbols
for TASK in $TASKS; do
    WORK=$OUT/work/$TASK STEPS=$OUT/work/$TASK/steps
    chain ""
    declare -A FILES=([train]=train [valid]=dev)
    INPUTS=(input0 input1) LABELS=classes
    case $TASK in
        CoLA | SST-2) INPUTS=(input0) ;;
        STS-B) LABELS=numbers ;;
        MNLI) FILES[valid]=dev_matched FILES[valid1]=dev_mismatched ;;
    esac
    for split in "${!FILES[@]}"; do
        file=$SOURCE/$TASK/${FILES[$split]}.tsv
        if ((!DRY_RUN)); then
            [[ -f $file ]] || die "$file: no such file"
            STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
        fi
    done
    ((DRY_RUN)) || STEP_CHAIN+=$(splitting)$'\n'
    for split in "${!FILES[@]}"; do
        step "extract-$split" "$WORK/text/input0/$split" "$WORK/text/label/$split" -- \
            python "$RECIPE/tasks.py" extract "$TASK" "$SOURCE/$TASK/${FILES[$split]}.tsv" \
            "$WORK/text" "$split" \
            ${KEEP_CASE:+"$KEEP_CASE"}
        for input in "${INPUTS[@]}"; do
            if [[ -n $TOKENIZER ]]; then
                tokens_step "$split-$input" "$WORK/text/$input/$split" "$WORK/pieces/$input/$split"
                continue
            fi
            step "tokenize-$split-$input" "$WORK/tokens/$input/$split" -- \
                python "$COMMON/moses.py" tokenize --lang "$TEXT_LANG" \
                "$WORK/text/$input/$split" "$WORK/tokens/$input/$split"
            step "apply-bpe-$split-$input" "$WORK/pieces/$input/$split" -- \
                python "$COMMON/bpe.py" apply "$PRETRAINED/bpe.codes" \
                "$WORK/tokens/$input/$split" "$WORK/pieces/$input/$split"
        done
    done
    VALID=(valid)
    [[ $TASK != MNLI ]] || VALID+=(valid1)
    binarize_step "$TASK" "$LABELS"
    unset FILES
done

log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
