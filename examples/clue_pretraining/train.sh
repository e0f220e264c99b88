#!/usr/bin/env bash
# Chinese masked language models: pre-train one model of the GAU paper, Table 7.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of roformer roformer_v2 gau, DATA the data-bin folder of prepare.sh, which also records
# whether samples are of fixed length. Whole words are masked. Flags after -- override the paper's.
#
#   --save-dir DIR        checkpoints, train.log and at the end the model folder, model
#                         (default: runs/clue_pretraining/MODEL)
#   --updates N           number of updates: the first tenth is warm-up, a checkpoint is kept at
#                         every tenth (100000)
#   --batch N             samples per update, over all GPUs (256)
#   --samples-per-gpu N   maximum samples per GPU and pass; the rest of the batch is gathered over
#                         several passes, --update-freq (64)
#   options of ../common/cluster.sh
#   options of ../common/steps.sh --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

KNOWN="roformer roformer_v2 gau" LENGTHS=512
[[ " $KNOWN " == *" $MODEL "* ]] || die "$MODEL: unknown model; expected one of $KNOWN"
need "$DATA/text" "$DATA: no file text there; give the data-bin that prepare.sh made"
[[ ! -f $DATA/text ]] || LENGTHS=$(awk '$1 == "lengths" { print $2 }' "$DATA/text")
case $LENGTHS in
    512) BREAK=none ;;
    diff) BREAK=eos ;;
    *) die "$DATA/text: lengths is neither 512 nor diff; give the data-bin that prepare.sh made" ;;
esac
export PYTHONPATH=${USER_DIR%/*}${PYTHONPATH:+:$PYTHONPATH}
pass OPTIONS --gpus --cpu --nodes --node-rank --slurm --init-method --dry-run

# The rest is as in the pre-training of BERT; --arch overrides the model named there.
exec "$RECIPE/../bert_pretraining/train.sh" roformer "$DATA" \
    --user-dir "$RECIPE/whole_words" --save-dir "${SAVE_DIR:-runs/clue_pretraining/$MODEL}" \
    --updates "$UPDATES" --batch "$BATCH" --samples-per-gpu "$SAMPLES_PER_GPU" "${OPTIONS[@]}" -- \
    --arch "${MODEL}_masked_lm_base" --criterion masked_lm_accuracy --sample-break-mode "$BREAK" \
    --mask-whole-words --bpe marked_pieces \
    --lr 3e-4 --warmup-updates "$(fraction "$UPDATES" 10)" "${EXTRA[@]}"
