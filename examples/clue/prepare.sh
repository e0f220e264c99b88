#!/usr/bin/env bash
# CLUE: the original files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh CLUE_DIR PRETRAINED OUT [options]
#
# CLUE_DIR holds a folder for each task with train.json and dev.json as in CLUE's archives,
# or train.tsv and dev.tsv: tab-separated sentences and label. PRETRAINED is the
# data-bin folder that the model was pre-trained on (examples/clue_pretraining): its
# dictionary, its BPE and its segmentation are used here too. OUT/TASK is then what
# finetune.sh takes. If interrupted, run it again to resume.
#
#   --tasks "A B ..."     of AFQMC CSL IFLYTEK TNEWS WSC CMNLI (those in CLUE_DIR)
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

sentence_options CLUE "AFQMC CSL IFLYTEK TNEWS WSC CMNLI" clue_pretraining "$@"
SEGMENT=()
if ((!DRY_RUN)) && [[ -z $TOKENIZER ]]; then
    ! grep -q '^segmenter spaces' "$PRETRAINED/text" || SEGMENT+=(--segmented)
    ! grep -q '^keep-case --' "$PRETRAINED/text" || SEGMENT+=(--keep-case)
fi
PIECES=$RECIPE/../clue_pretraining/pieces.py
VALID=(valid)

[[ -z $TOKENIZER ]] || check_symbols
for TASK in $TASKS; do
    WORK=$OUT/work/$TASK STEPS=$OUT/work/$TASK/steps
    chain ""
    INPUTS=(input0)
    case $TASK in
        AFQMC | CSL | CMNLI) INPUTS+=(input1) ;;
    esac
    ((DRY_RUN)) || STEP_CHAIN+=$(splitting)$'\n'
    for split in train valid; do
        file=$SOURCE/$TASK/${split/valid/dev}
        if [[ -f $file.tsv ]]; then file+=.tsv; else file+=.json; fi
        if ((!DRY_RUN)); then
            [[ -f $file ]] || die "$file: no such file, nor one that ends in .tsv"
            STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
        fi
        step "extract-$split" "$WORK/text/input0/$split" "$WORK/text/label/$split" -- \
            python "$RECIPE/clue.py" extract "$TASK" "$file" "$WORK/text" "$split"
        for input in "${INPUTS[@]}"; do
            if [[ -n $TOKENIZER ]]; then
                tokens_step "$split-$input" "$WORK/text/$input/$split" "$WORK/pieces/$input/$split"
                continue
            fi
            step "segment-$split-$input" "$WORK/words/$input/$split" -- \
                python "$PIECES" segment "${SEGMENT[@]}" \
                "$WORK/text/$input/$split" "$WORK/words/$input/$split"
            step "split-$split-$input" "$WORK/pieces/$input/$split" -- \
                python "$PIECES" split "$PRETRAINED/bpe.codes" \
                "$WORK/words/$input/$split" "$WORK/pieces/$input/$split"
        done
    done
    binarize_step "$TASK" classes
done

log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
