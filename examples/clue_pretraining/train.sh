#!/usr/bin/env bash
# Chinese masked language models: pre-train one model of the GAU paper, Table 7.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of roformer roformer_v2 gau, DATA the data-bin folder that prepare.sh made;
# it also says whether the samples are of fixed length. Whole words are masked. Flags
# after -- win over the paper's. Started again with the same --save-dir, it goes on from
# checkpoint_last.pt.
#
#   --save-dir DIR        checkpoints and train.log (runs/clue_pretraining/MODEL)
#   --updates N           length of the training (100000): the first tenth is warm-up, a
#                         checkpoint stays at every tenth
#   --batch N             samples of one update, over all GPUs (256: 4 passes of 64)
#   --samples-per-gpu N   most samples a GPU takes at once (64); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --gpus N              GPUs of this node (all visible ones)
#   --cpu                 one process without GPU and fp16, for trying things out
#   --nodes N             number of nodes (1)
#   --node-rank N         which of them this is, from 0
#   --slurm               take the last two from SLURM_NNODES and SLURM_NODEID
#   --init-method URL     tcp://HOST:PORT of the first node; needed when there are several
#   --dry-run             print the commands, run none
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
        -*) die "$1: unknown option; see --help (flags for fairseq-train go after --)" ;;
        *)
            [[ -z $DATA ]] || die "$1: one argument too many; flags for fairseq-train go after --"
            if [[ -z $MODEL ]]; then MODEL=$1; else DATA=$1; fi
            shift ;;
    esac
done
# What is left in "$@" is for fairseq-train.

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

# The rest is as in the pre-training of BERT; --arch wins over the model named there.
exec "$RECIPE/../bert_pretraining/train.sh" roformer "$DATA" \
    --user-dir "$RECIPE/whole_words" --save-dir "${SAVE_DIR:-runs/clue_pretraining/$MODEL}" \
    --updates "$UPDATES" "${OPTIONS[@]}" -- --arch "${MODEL}_masked_lm_base" \
    --criterion masked_lm_accuracy --sample-break-mode "$BREAK" \
    --mask-whole-words --bpe marked_pieces \
    --lr 3e-4 --warmup-updates "$WARMUP" "$@"
