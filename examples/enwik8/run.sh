#!/usr/bin/env bash
# RoFormer 4.4: a character-level Performer with and without rotary, loss curves in one figure.
#
#   run.sh SOURCE OUT [options] [-- flags for fairseq-train]
#
# SOURCE is the file enwik8. Data go to OUT/data, runs to OUT/ENCODING-seedN, and the curves,
# means over the seeds, to OUT/curves.png; it ends with a table of the bits per
# character of all runs in OUT. The model is performer_lm_enwik8 with the paper's settings;
# flags after -- override them. If interrupted, run it again to resume; several runs with
# different seeds can share OUT at the same time.
#
#   --kind NAME           kind of SOURCE: enwik8 (the bytes of any file) or text8 (enwik8)
#   --encodings "X ..."   models to train: without and with rotary (learned rotary)
#   --seeds "N ..."       seeds (1 2)
#   --length N            characters per sample (1024)
#   --batch N             samples per update, over all GPUs (128)
#   --updates N           number of updates (100000)
#   --tokens-per-gpu N    maximum characters per GPU and pass (8192)
#   --gpus N              GPUs on this node (all visible ones)
#   --cpu                 one process without GPU or fp16, for a quick try
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

SOURCE="" OUT="" KIND=enwik8 ENCODINGS="learned rotary" SEEDS="1 2"
LENGTH=1024 BATCH=128 UPDATES=100000 LIMIT=8192 DRY=() OPTIONS=()
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; DRY=("$1"); shift ;;
        --kind) KIND=$(value "$@"); shift 2 ;;
        --encodings) ENCODINGS=$(value "$@"); shift 2 ;;
        --seeds) SEEDS=$(value "$@"); shift 2 ;;
        --length) LENGTH=$(value "$@"); shift 2 ;;
        --batch) BATCH=$(value "$@"); shift 2 ;;
        --updates) UPDATES=$(value "$@"); shift 2 ;;
        --cpu) OPTIONS+=("$1"); shift ;;
        --tokens-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --gpus | --user-dir) OPTIONS+=("$1" "$(value "$@")"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" SOURCE OUT; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the file enwik8 and the output folder; see --help"
[[ $KIND == enwik8 || $KIND == text8 ]] || die "--kind $KIND: expected enwik8 or text8"
whole_number --length "$LENGTH"
whole_number --batch "$BATCH"
whole_number --updates "$UPDATES"
need python

MODELS=$RECIPE/../language_model
prepare() {
    "$MODELS/prepare.sh" "$KIND" "$SOURCE" "$OUT/data" "${DRY[@]}"
}

# The data is for all runs in OUT.
hold "$OUT/data" wait
interruptible prepare
release

COMPARE=("$MODELS/compare.sh" "$OUT/data/data-bin" "$OUT" --encodings "$ENCODINGS" --seeds "$SEEDS"
    --length "$LENGTH" --batch $((BATCH * LENGTH)) --updates "$UPDATES" --tokens-per-gpu "$LIMIT"
    "${OPTIONS[@]}" "${DRY[@]}" -- --arch performer_lm_enwik8 --lr 1e-4 --min-lr 1e-5 "$@")
# That table has the paper's results on another corpus; standard output is for our table.
if ((DRY_RUN)); then "${COMPARE[@]}"; else interruptible "${COMPARE[@]}" >&2; fi

LABELS=() LOGS=()
for encoding in $ENCODINGS; do
    for seed in $SEEDS; do
        LABELS+=("$encoding") LOGS+=("$OUT/$encoding-seed$seed/train.log")
    done
done
# The loss of the first updates would flatten the rest of the curves.
run fairseq-posenc plot training --output "$OUT/curves.png" \
    --from "$(fraction "$UPDATES" 50)" --labels "${LABELS[@]}" -- "${LOGS[@]}"
run python "$RECIPE/bits.py" "$OUT"
