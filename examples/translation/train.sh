#!/usr/bin/env bash
# Translation: train any architecture on one node (or, with --nodes, on several).
#
#   train.sh ARCH DATA [options] [-- flags for fairseq-train]
#
# ARCH is any architecture for translation (roformer_base, transformer, ...), DATA the
# data-bin folder that prepare.sh made. fairseq-train starts one process per GPU: do
# not use torchrun. Run again with the same --save-dir, it resumes from
# checkpoint_last.pt. The defaults are those of Vaswani et al.'s base model.
#
#   --save-dir DIR        checkpoints and train.log (RUNS/ARCH)
#   --runs DIR            the folder RUNS (runs/translation)
#   --updates N           length of the training (100000)
#   --epochs N            length in passes over the data, instead
#   --seed N              seed of fairseq-train (1)
#   --tokens-per-batch N  tokens per side and update, over all GPUs (25000)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (3584); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --keep-epochs N       epoch checkpoints to keep (10)
#   --save-every N        also write a checkpoint every N updates
#   --keep-updates N      how many of these to keep (20)
#   --gpus N              GPUs on this node (all visible ones)
#   --fp32                on GPUs, too (fp16)
#   --cpu                 one process without GPU
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
# shellcheck source=../common/translation.sh
. "$RECIPE/../common/translation.sh"

ARCH="" DATA="" SAVE_DIR="" RUNS=runs/translation USER_DIR="" BATCH=25000 LIMIT=3584 SEED=1
UPDATES="" EPOCHS="" KEEP_EPOCHS=10 SAVE_EVERY="" KEEP_UPDATES=20
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --fp32) PRECISION=""; shift ;;
        --save-dir) SAVE_DIR=$(value "$@"); shift 2 ;;
        --runs) RUNS=$(value "$@"); shift 2 ;;
        --updates) UPDATES=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --seed) SEED=$(value "$@"); shift 2 ;;
        --tokens-per-batch) BATCH=$(value "$@"); shift 2 ;;
        --tokens-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --keep-epochs) KEEP_EPOCHS=$(value "$@"); shift 2 ;;
        --save-every) SAVE_EVERY=$(value "$@"); shift 2 ;;
        --keep-updates) KEEP_UPDATES=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --cpu | --slurm) cluster_switch "$1"; shift ;;
        --gpus | --nodes | --node-rank | --init-method) cluster_option "$@"; shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" ARCH DATA; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $DATA ]] || die "give the architecture and the data folder; see --help"
plain_name ARCH "$ARCH"
whole_number --tokens-per-batch "$BATCH"
whole_number --tokens-per-gpu "$LIMIT"
whole_number --seed "$SEED"
whole_number --keep-epochs "$KEEP_EPOCHS"
whole_number --keep-updates "$KEEP_UPDATES"
[[ -z $UPDATES || -z $EPOCHS ]] || die "--epochs $EPOCHS: give it or --updates"
[[ -z $EPOCHS ]] || whole_number --epochs "$EPOCHS"
[[ -z $UPDATES ]] || whole_number --updates "$UPDATES"
[[ -z $SAVE_EVERY ]] || whole_number --save-every "$SAVE_EVERY"
need python fairseq-train
cluster_flags
read_settings "$DATA"
USER_DIR=${USER_DIR:-$(plugin_dir)}
SAVE_DIR=${SAVE_DIR:-$RUNS/$ARCH}

# The fewest passes whose share of the batch fits on a GPU, then that share.
PASSES=$(((BATCH + WORLD * LIMIT - 1) / (WORLD * LIMIT)))
SHARE=$(((BATCH + WORLD * PASSES / 2) / (WORLD * PASSES)))
((SHARE > 250)) || [[ -n $CPU ]] ||
    die "--tokens-per-batch $BATCH: leaves $SHARE tokens for each of $WORLD GPUs; sentences have up to 250"
log "$WORLD processes x $SHARE tokens x $PASSES passes = $((WORLD * SHARE * PASSES)) tokens an update"

SHARED=--share-all-embeddings
[[ $VOCABULARY == joint ]] || SHARED=--share-decoder-input-output-embed
LENGTH=(--max-update "${UPDATES:-100000}")
[[ -z $EPOCHS ]] || LENGTH=(--max-epoch "$EPOCHS")
TIMEFORMAT="training took %R s (processor time %U s)"
time train_model "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" \
    --task translation ${SOURCE:+--source-lang "$SOURCE" --target-lang "$TARGET"} \
    --arch "$ARCH" "$SHARED" --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --weight-decay 0.0 --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-init-lr 1e-7 --warmup-updates 4000 \
    --max-tokens "$SHARE" --update-freq "$PASSES" --required-batch-size-multiple 1 \
    "${LENGTH[@]}" --seed "$SEED" --keep-last-epochs "$KEEP_EPOCHS" \
    ${SAVE_EVERY:+--save-interval-updates "$SAVE_EVERY" --keep-interval-updates "$KEEP_UPDATES"} \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
    "${CLUSTER[@]}" "$@"
