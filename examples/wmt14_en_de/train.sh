#!/usr/bin/env bash
# WMT14 English-German: train on one node (or, through train.sbatch, on several).
#
#   train.sh ARCH DATA [options] [-- flags for fairseq-train]
#
# ARCH is any architecture for translation (roformer_base, transformer, ...), DATA the
# data-bin folder that prepare.sh made. fairseq-train starts one process per GPU: do
# not use torchrun. Run again with the same --save-dir, it resumes from
# checkpoint_last.pt. The work is done by ../translation/train.sh, whose options
# and defaults these are; here it also writes a checkpoint every 1250 updates, for
# evaluate.sh to average.
#
#   --save-dir DIR        checkpoints and train.log (runs/wmt14_en_de/ARCH)
#   --gpus N              GPUs on this node (all visible ones)
#   --tokens-per-batch N  tokens per side and update, over all GPUs (25000)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (3584); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --updates N           length of the training (100000)
#   --epochs N            length in passes over the data, instead
#   --seed N              seed of fairseq-train (1)
#   --keep-epochs N       epoch checkpoints to keep (5)
#   --save-every N        updates between two checkpoints to average (1250)
#   --keep-updates N      how many of these to keep (20)
#   --fp32                on GPUs, too (fp16)
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
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"

own_help "$@"
exec "$RECIPE/../translation/train.sh" --runs runs/wmt14_en_de --keep-epochs 5 --save-every 1250 \
    --keep-updates 20 "$@"
