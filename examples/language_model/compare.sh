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
#   --encodings "NAME ..."  as for train.sh (learned t5 alibi shaw transformer_xl rotary)
#   --seeds "N ..."       seeds (1 2)
#   --subset NAME         subset to score, such as valid or test (valid)
#   --length N            tokens per sample, in training and scoring (2048)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (16384)
#   --size small|medium   size of the model, as for train.sh (default: small)
#   --updates N           number of updates, as for train.sh (default: the paper's)
#   --batch N             tokens per update, over all GPUs (default: 524288, of medium 1048576)
#   --adaptive N,N        adaptive input and softmax, as for train.sh
#   --gpus N              GPUs on this node (default: all visible ones)
#   --cpu                 one process without GPU or fp16, for a quick try
#   --user-dir DIR        the plug-in (default: fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
parse "$@"

DATA=${DATA%/}
((DRY_RUN)) || [[ -f $DATA/$SUBSET.idx ]] ||
    die "$DATA: has no text $SUBSET; give the data-bin folder that prepare.sh made"
USER_DIR=${USER_DIR:-$(plugin_dir)} DEVICE=()
((!CPU)) || DEVICE=(--cpu)
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
