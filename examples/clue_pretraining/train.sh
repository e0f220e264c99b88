#!/usr/bin/env bash
# Chinese masked language models: pre-train one model of the GAU paper, Table 7.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of roformer roformer_v2 gau, DATA the data-bin folder that prepare.sh made;
# it also records whether samples are of fixed length. Whole words are masked. Flags
# after -- override those of the paper. Run again with the same --save-dir, it resumes from
# checkpoint_last.pt.
#
#   --save-dir DIR        checkpoints, train.log and at the end the model folder, model
#                         (runs/clue_pretraining/MODEL)
#   --updates N           number of updates (100000): the first tenth is warm-up, a
#                         checkpoint is kept at every tenth
#   --batch N             samples per update, over all GPUs (256: 4 passes of 64)
#   --samples-per-gpu N   maximum samples per GPU and pass (64); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --gpus N              GPUs on this node (all visible ones)
#   --cpu                 one process without GPU or fp16, for a quick try
#   --nodes N             number of nodes (1)
#   --node-rank N         number of this node, from 0
#   --slurm               take these two from SLURM_NNODES and SLURM_NODEID
#   --init-method URL     tcp://HOST:PORT of the first node; needed for several nodes
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

MODELS="roformer roformer_v2 gau"
MODEL="" DATA="" SAVE_DIR="" UPDATES=100000 OPTIONS=(--batch 256 --samples-per-gpu 64)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; OPTIONS+=("$1"); shift ;;
        --save-dir) SAVE_DIR=$(value "$@"); shift 2 ;;
        --updates) UPDATES=$(value "$@"); shift 2 ;;
        --cpu | --slurm) OPTIONS+=("$1"); shift ;;
        --batch | --samples-per-gpu | --gpus | --nodes | --node-rank | --init-method)
            OPTIONS+=("$1" "$(value "$@")"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" MODEL DATA; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $DATA ]] || die "give the model and the data folder; see --help"
[[ " $MODELS " == *" $MODEL "* ]] || die "$MODEL: unknown model; expected one of $MODELS"
whole_number --updates "$UPDATES"
LENGTHS=512
if ((!DRY_RUN)) || [[ -f $DATA/text ]]; then
    [[ -f $DATA/text ]] || die "$DATA: no file text there; give the data-bin that prepare.sh made"
    LENGTHS=$(awk '$1 == "lengths" { print $2 }' "$DATA/text")
fi
case $LENGTHS in
    512) BREAK=none ;;
    diff) BREAK=eos ;;
    *) die "$DATA/text: lengths is neither 512 nor diff; give the data-bin that prepare.sh made" ;;
esac
PLUGIN=$(plugin_dir)
export PYTHONPATH=${PLUGIN%/*}${PYTHONPATH:+:$PYTHONPATH}
WARMUP=$((UPDATES / 10 > 0 ? UPDATES / 10 : 1))

# The rest is as in the pre-training of BERT; --arch overrides the model named there.
exec "$RECIPE/../bert_pretraining/train.sh" roformer "$DATA" \
    --user-dir "$RECIPE/whole_words" --save-dir "${SAVE_DIR:-runs/clue_pretraining/$MODEL}" \
    --updates "$UPDATES" "${OPTIONS[@]}" -- --arch "${MODEL}_masked_lm_base" \
    --criterion masked_lm_accuracy --sample-break-mode "$BREAK" \
    --mask-whole-words --bpe marked_pieces \
    --lr 3e-4 --warmup-updates "$WARMUP" "$@"
