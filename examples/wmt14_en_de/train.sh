#!/usr/bin/env bash
# WMT14 English-German: train on one node (or, through train.sbatch, on several).
#
#   train.sh ARCH DATA [options] [-- flags for fairseq-train]
#
# ARCH is any architecture for translation (roformer_base, transformer, ...), DATA the
# data-bin folder that prepare.sh made. fairseq-train starts one process per GPU: do
# not use torchrun. Run again with the same --save-dir, it resumes from
# checkpoint_last.pt.
#
#   --save-dir DIR        checkpoints and train.log (runs/wmt14_en_de/ARCH)
#   --gpus N              GPUs on this node (all visible ones)
#   --tokens-per-batch N  tokens per side and update, over all GPUs (25000)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (3584); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --cpu                 one process without GPU or fp16, for a quick try
#   --nodes N             number of nodes (1)
#   --node-rank N         number of this node, from 0
#   --slurm               take these two from SLURM_NNODES and SLURM_NODEID
#   --init-method URL     tcp://HOST:PORT of the first node; needed for several nodes
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/cluster.sh
. "$RECIPE/../common/cluster.sh"

ARCH="" DATA="" SAVE_DIR="" USER_DIR="" BATCH=25000 LIMIT=3584
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --save-dir) SAVE_DIR=$(value "$@"); shift 2 ;;
        --tokens-per-batch) BATCH=$(value "$@"); shift 2 ;;
        --tokens-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --cpu | --slurm) cluster_switch "$1"; shift ;;
        --gpus | --nodes | --node-rank | --init-method) cluster_option "$@"; shift 2 ;;
        --) shift; break ;;
        -*) die "$1: unknown option; see --help (flags for fairseq-train go after --)" ;;
        *)
            [[ -z $DATA ]] || die "$1: unexpected argument; flags for fairseq-train go after --"
            if [[ -z $ARCH ]]; then ARCH=$1; else DATA=$1; fi
            shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $DATA ]] || die "give the architecture and the data folder; see --help"
plain_name ARCH "$ARCH"
whole_number --tokens-per-batch "$BATCH"
whole_number --tokens-per-gpu "$LIMIT"
need python fairseq-train
cluster_flags
((DRY_RUN)) || [[ -f $DATA/dict.de.txt ]] ||
    die "$DATA: no dict.de.txt there; give the data-bin folder that prepare.sh made"
USER_DIR=${USER_DIR:-$(plugin_dir)}
SAVE_DIR=${SAVE_DIR:-runs/wmt14_en_de/$ARCH}

# The fewest passes whose share of the batch fits on a GPU, then that share.
PASSES=$(((BATCH + WORLD * LIMIT - 1) / (WORLD * LIMIT)))
SHARE=$(((BATCH + WORLD * PASSES / 2) / (WORLD * PASSES)))
((SHARE > 250)) || [[ -n $CPU ]] ||
    die "--tokens-per-batch $BATCH: leaves $SHARE tokens for each of $WORLD GPUs; sentences have up to 250"
log "$WORLD processes x $SHARE tokens x $PASSES passes = $((WORLD * SHARE * PASSES)) tokens an update"

train_model "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" --task translation \
    --source-lang en --target-lang de --arch "$ARCH" --share-all-embeddings --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0 --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 --warmup-updates 4000 \
    --max-tokens "$SHARE" --update-freq "$PASSES" --required-batch-size-multiple 1 \
    --max-update 100000 --seed 1 --keep-last-epochs 10 \
    --save-interval-updates 2000 --keep-interval-updates 1 \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
    "${CLUSTER[@]}" "$@"
