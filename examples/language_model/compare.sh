#!/usr/bin/env bash
# Language models: train several encodings with several seeds, score them, print the table.
#
#   compare.sh DATA OUT [options] [-- flags for fairseq-train]
#
# DATA is the data-bin folder that prepare.sh made. Runs go to OUT/ENCODING-seedN: the
# files of train.sh and score-SUBSET.log, the output of fairseq-eval-lm for the last checkpoint.
# It ends with a table of all runs in OUT. If interrupted, run it again to resume; a run that was
# started with other options is not resumed.
#
#   --encodings "X ..."   as for train.sh (learned t5 alibi shaw transformer_xl rotary)
#   --seeds "N ..."       seeds (1 2)
#   --subset NAME         subset to score: valid or test (valid)
#   --length N            tokens per sample, in training and scoring (2048)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (16384)
#   --size SIZE, --updates N, --batch N, --adaptive N,N, --gpus N, --cpu, --user-dir DIR
#                         as for train.sh
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" OUT="" USER_DIR="" SEEDS="1 2" SUBSET=valid LENGTH=2048 LIMIT=16384
ENCODINGS="learned t5 alibi shaw transformer_xl rotary"
TRAINING=() DEVICE=()
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; TRAINING+=("$1"); shift ;;
        --cpu) TRAINING+=("$1"); DEVICE=("$1"); shift ;;
        --encodings) ENCODINGS=$(value "$@"); shift 2 ;;
        --seeds) SEEDS=$(value "$@"); shift 2 ;;
        --subset) SUBSET=$(value "$@"); shift 2 ;;
        --length) LENGTH=$(value "$@"); shift 2 ;;
        --tokens-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --size | --updates | --batch | --adaptive | --gpus)
            TRAINING+=("$1" "$(value "$@")"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA OUT; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the data folder and the output folder; see --help"
for seed in $SEEDS; do
    whole_number --seeds "$seed"
done
for encoding in $ENCODINGS; do
    plain_name --encodings "$encoding"
done
plain_name --subset "$SUBSET"
need python fairseq-eval-lm
((DRY_RUN)) || [[ -f $DATA/$SUBSET.idx ]] ||
    die "$DATA: has no text $SUBSET; give the data-bin folder that prepare.sh made"
USER_DIR=${USER_DIR:-$(plugin_dir)}
TRAINING+=(--length "$LENGTH" --tokens-per-gpu "$LIMIT" --user-dir "$USER_DIR")
STEPS=$OUT/steps

GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$DATA/dict.txt" "$DATA/train.idx")$'\n'
use_data "$DATA"
SCORED="" # what that leaves out
((DRY_RUN)) || [[ $SUBSET == train || $SUBSET == valid ]] ||
    SCORED=$(cat "$DATA/$SUBSET".{bin,idx} | sha256sum)$'\n'
for seed in $SEEDS; do
    for encoding in $ENCODINGS; do
        folder=$OUT/$encoding-seed$seed
        chain "$GIVEN"
        hold "$folder"
        step "train-$encoding-seed$seed" "$folder/checkpoint_last.pt" -- \
            train_once OUT "$folder" "$RECIPE/train.sh" "$encoding" "$DATA" \
            --save-dir "$folder" --seed "$seed" "${TRAINING[@]}" -- "$@"
        STEP_CHAIN+=$SCORED
        step "score-$SUBSET-$encoding-seed$seed" "$folder/score-$SUBSET.log" -- \
            logged "$folder/score-$SUBSET.log" fairseq-eval-lm "$DATA" --user-dir "$USER_DIR" \
            --path "$folder/checkpoint_last.pt" --gen-subset "$SUBSET" \
            --tokens-per-sample "$LENGTH" --max-tokens "$LIMIT" "${DEVICE[@]}"
        release
    done
done
warn_of_other_data "$OUT"/*-seed*
run python "$RECIPE/perplexities.py" --subset "$SUBSET" "$OUT"
