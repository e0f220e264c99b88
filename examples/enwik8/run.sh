#!/usr/bin/env bash
# RoFormer 4.4: a character-level Performer with and without rotary, loss curves in one figure.
#
#   run.sh SOURCE OUT [options] [-- flags for fairseq-train]
#
# SOURCE is the file enwik8. Data go to OUT/data, runs to OUT/ENCODING-seedN, and the curves, means over
# the seeds, to OUT/curves.png; it ends with a table of the bits per character of all runs in OUT. The
# model is performer_lm_enwik8 with the paper's settings; flags after -- override them. Several runs with
# different seeds can share OUT at the same time.
#
#   --kind enwik8|text8   kind of SOURCE: the bytes of any file, or letters and spaces (enwik8)
#   --encodings "NAME ..."  models to train: without and with rotary (learned rotary)
#   --length N            characters per sample (1024)
#   --batch N             samples per update, over all GPUs (128)
#   --updates N           number of updates (100000)
#   --tokens-per-gpu N    maximum characters per GPU and pass (8192)
#   options of ../language_model/compare.sh --seeds --gpus --cpu --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

MODELS=$RECIPE/../language_model
pass DRY --dry-run
pass OPTIONS --cpu --gpus --user-dir --dry-run
alone "$OUT/${ENCODINGS%% *}-seed${SEEDS%% *}"

# The data is for all runs in OUT.
shared "$OUT/data" "$MODELS/prepare.sh" "$KIND" "$SOURCE" "$OUT/data" "${DRY[@]}"
# The table of compare.sh has the paper's results on another corpus; standard output is for ours.
"$MODELS/compare.sh" "$OUT/data/data-bin" "$OUT" --encodings "$ENCODINGS" --seeds "$SEEDS" \
    --length "$LENGTH" --batch $((BATCH * LENGTH)) --updates "$UPDATES" \
    --tokens-per-gpu "$TOKENS_PER_GPU" "${OPTIONS[@]}" -- \
    --arch performer_lm_enwik8 --lr 1e-4 --min-lr 1e-5 "${EXTRA[@]}" >&$((2 - DRY_RUN))

LABELS=() LOGS=()
for encoding in $ENCODINGS; do
    for seed in $SEEDS; do
        LABELS+=("$encoding") LOGS+=("$OUT/$encoding-seed$seed/train.log")
    done
done
# The loss of the first updates would flatten the rest of the curves.
run fairseq-posenc plot training --output "$OUT/curves.png" \
    --from "$(fraction "$UPDATES" 50)" --labels "${LABELS[@]}" -- "${LOGS[@]}"
run fairseq-posenc script "$MODELS/perplexities.py" --characters "$OUT"
