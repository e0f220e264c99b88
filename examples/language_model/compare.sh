#!/usr/bin/env bash
# Language models: train several encodings with several seeds, score them, print the table.
#
#   compare.sh DATA OUT [options] [-- flags for fairseq-train]
#
# DATA is the data-bin folder of prepare.sh. Runs go to OUT/ENCODING-seedN: the files of train.sh and
# score-SUBSET.log, the output of fairseq-eval-lm for the last checkpoint. It ends with a table of all
# runs in OUT.
#
#   --encodings "NAME ..."  as for train.sh (learned t5 alibi shaw transformer_xl rotary)
#   --seeds "N ..."       seeds (1 2)
#   --subset NAME         subset to score, such as valid or test (valid)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (16384)
#   options of train.sh --size --updates --length --batch --adaptive --gpus --cpu --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

need "$DATA/$SUBSET.idx" "$DATA: has no text $SUBSET; give the data-bin folder that prepare.sh made"
pass DEVICE --cpu
pass TRAINING --size --updates --batch --adaptive --gpus --cpu --dry-run
# Others may be at work on other seeds: this script holds the folder of its first run.
alone "$OUT/${ENCODINGS%% *}-seed${SEEDS%% *}"

for seed in $SEEDS; do
    for encoding in $ENCODINGS; do
        STEPS=$OUT/$encoding-seed$seed
        # Standard output is for the table, and for the commands of a dry run.
        "$RECIPE/train.sh" "$encoding" "$DATA" --save-dir "$STEPS" --seed "$seed" \
            --length "$LENGTH" --tokens-per-gpu "$TOKENS_PER_GPU" --user-dir "$USER_DIR" \
            "${TRAINING[@]}" -- "${EXTRA[@]}" >&$((2 - DRY_RUN))
        step "score-$SUBSET" --inputs "$STEPS/checkpoint_last.pt" "$DATA/dict.txt" \
            "$DATA/$SUBSET".{bin,idx} --log "$STEPS/score-$SUBSET.log" -- \
            fairseq-eval-lm "$DATA" --user-dir "$USER_DIR" --path "$STEPS/checkpoint_last.pt" \
            --gen-subset "$SUBSET" --tokens-per-sample "$LENGTH" --max-tokens "$TOKENS_PER_GPU" \
            "${DEVICE[@]}" >&$((2 - DRY_RUN))
    done
done
((DRY_RUN)) || fairseq-posenc stale "$OUT"/*-seed*/ --data "$DATA"
run fairseq-posenc script "$RECIPE/perplexities.py" --subset "$SUBSET" "$OUT"
