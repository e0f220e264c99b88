#!/usr/bin/env bash
# CLUE: the original files to binarised data for fairseq's sentence_prediction.
#
#   prepare.sh CLUE_DIR PRETRAINED OUT [options]
#
# CLUE_DIR holds a folder for each task with train.json and dev.json as in CLUE's archives,
# or train.tsv and dev.tsv: sentences and label with tabs between. PRETRAINED is the
# data-bin folder that the model was pre-trained on (examples/clue_pretraining): its
# dictionary, its BPE and its segmentation are used here too. OUT/TASK is then what
# finetune.sh takes. Stopped and started again, it goes on where it was.
#
#   --tasks "A B ..."     of AFQMC CSL IFLYTEK TNEWS WSC CMNLI (those in CLUE_DIR)
#   --workers N           processes (all cores)
#   --dry-run             print the commands of all steps, run none
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

ALL="AFQMC CSL IFLYTEK TNEWS WSC CMNLI"
CLUE="" PRETRAINED="" OUT="" TASKS="" WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --tasks) TASKS=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) die "$1: unknown option; see --help" ;;
        *)
            [[ -z $OUT ]] || die "$1: one folder too many; see --help"
            if [[ -z $CLUE ]]; then CLUE=$1
            elif [[ -z $PRETRAINED ]]; then PRETRAINED=$1
            else OUT=$1; fi
            shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folders of CLUE, of the pre-training's data and of the output"
whole_number --workers "$WORKERS"
for task in $TASKS; do
    [[ " $ALL " == *" $task "* ]] || die "--tasks $task: expected some of $ALL"
    ((DRY_RUN)) || [[ -d $CLUE/$task ]] || die "--tasks $task: there is no folder $CLUE/$task"
done
if [[ -z $TASKS ]]; then
    for task in $ALL; do
        [[ ! -d $CLUE/$task ]] || TASKS+="$task "
    done
    [[ -n $TASKS ]] || die "$CLUE: has no folder of a task ($ALL)"
fi
SEGMENT=()
if ((!DRY_RUN)); then
    for file in dict.txt bpe.codes text; do
        [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/clue_pretraining made"
    done
    ! grep -q '^segmenter spaces' "$PRETRAINED/text" || SEGMENT+=(--segmented)
    ! grep -q '^keep-case --' "$PRETRAINED/text" || SEGMENT+=(--keep-case)
fi
export WORKERS
need python fairseq-preprocess
CLUE=$(absolute "$CLUE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
PIECES=$RECIPE/../clue_pretraining/pieces.py

# Binarise the texts of folder $1 into folder $2; what follows goes to fairseq-preprocess.
preprocess() {
    local texts=$1 folder=$2
    shift 2
    run fairseq-preprocess --only-source --trainpref "$texts/train" --validpref "$texts/valid" \
        --destdir "$folder" --workers "$WORKERS" "$@"
}

binarize() {
    local part=$OUT/$TASK.part input
    run rm -rf "$part"
    for input in "${INPUTS[@]}"; do
        preprocess "$WORK/pieces/$input" "$part/$input" --srcdict "$PRETRAINED/dict.txt"
    done
    preprocess "$WORK/text/label" "$part/label"
    ((DRY_RUN)) || wc -l <"$WORK/text/label/train" >"$part/examples"
    run rm -rf "${OUT:?}/$TASK"
    run mv "$part" "$OUT/$TASK"
}

for TASK in $TASKS; do
    WORK=$OUT/work/$TASK STEPS=$OUT/work/$TASK/steps STEP_CHAIN=""
    INPUTS=(input0)
    case $TASK in
        AFQMC | CSL | CMNLI) INPUTS+=(input1) ;;
    esac
    ((DRY_RUN)) || STEP_CHAIN+=$(cat "$PRETRAINED"/{dict.txt,bpe.codes} | sha256sum)$'\n'
    for split in train valid; do
        file=$CLUE/$TASK/${split/valid/dev}
        if [[ -f $file.tsv ]]; then file+=.tsv; else file+=.json; fi
        if ((!DRY_RUN)); then
            [[ -f $file ]] || die "$file: no such file, nor one that ends in .tsv"
            STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
        fi
        step "extract-$split" python "$RECIPE/clue.py" extract "$TASK" "$file" "$WORK/text" "$split"
        for input in "${INPUTS[@]}"; do
            step "segment-$split-$input" python "$PIECES" segment "${SEGMENT[@]}" \
                "$WORK/text/$input/$split" "$WORK/words/$input/$split"
            step "split-$split-$input" python "$PIECES" split "$PRETRAINED/bpe.codes" \
                "$WORK/words/$input/$split" "$WORK/pieces/$input/$split"
        done
    done
    step binarize binarize
done

log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
