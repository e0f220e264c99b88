# shellcheck shell=bash
# Training on several GPUs or nodes; sourced after `parse`, which reads these options:
#
#   --gpus N              GPUs on this node, for each of which fairseq-train starts a process
#                         (default: all visible ones)
#   --cpu                 one process without GPU
#   --nodes N             number of nodes (1)
#   --node-rank NUMBER    number of this node, from 0 (0)
#   --slurm               take these two from SLURM_NNODES and SLURM_NODEID
#   --init-method URL     tcp://HOST:PORT of the first node; needed for several nodes
#
# It defines
#
#     visible_gpus               print their number
#     cluster_flags              check the options; set WORLD (number of processes) and CLUSTER (flags
#                                for fairseq-train), with --fp16 on GPUs unless FP32 is 1
#     equal_shares FLAG N LIMIT  divide the N samples of an update by WORLD; set SHARE (per process
#                                and pass, at most LIMIT) and PASSES (--update-freq)

WORLD=1 CLUSTER=() SHARE=1 PASSES=1

# Without a device file, PyTorch need not be asked, which takes seconds.
visible_gpus() {
    compgen -G '/dev/nvidia*' >/dev/null || [[ -e /dev/kfd || -e /dev/dxg ]] || { echo 0; return; }
    python -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0
}

# The version of an installed package, if there is one of that name.
release_of() {
    python -c 'import sys; from importlib.metadata import version; print(version(*sys.argv[1:]))' "$1" \
        2>/dev/null || true
}

cluster_flags() {
    local port
    if ((SLURM)); then
        [[ -n ${SLURM_NNODES:-} && -n ${SLURM_NODEID:-} ]] ||
            die "--slurm: SLURM_NNODES and SLURM_NODEID are not set; start it with srun"
        NODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID
    fi
    [[ $NODE_RANK =~ ^[0-9]+$ && $NODE_RANK -lt $NODES ]] ||
        die "--node-rank $NODE_RANK: expected 0 to $((NODES - 1)) for --nodes $NODES"
    [[ -z ${MASTER_ADDR:-} || -z ${WORLD_SIZE:-} || -z ${RANK:-} ]] ||
        die "RANK=$RANK is set: do not use torchrun; fairseq-train starts the processes itself"
    if ((CPU)); then
        GPUS=1 CLUSTER=(--cpu)
    else
        GPUS=${GPUS:-$(visible_gpus)}
        if [[ $GPUS == 0 ]] && ((DRY_RUN)); then
            log "no GPU is visible; the commands are those for 8, as --gpus 8 gives them"
            GPUS=8
        fi
        [[ $GPUS != 0 ]] || die "no GPU is visible; give --cpu"
        ((${FP32:-0})) || CLUSTER=(--fp16)
    fi
    # Always pass the address: otherwise fairseq infers it from the variables of Slurm and
    # torchrun, wrongly if several tasks were requested.
    WORLD=$((NODES * GPUS))
    CLUSTER+=(--distributed-world-size "$WORLD")
    ((WORLD > 1)) || return 0
    if [[ -z $INIT_METHOD ]]; then
        ((NODES == 1)) || die "--nodes $NODES: needs --init-method tcp://HOST:PORT of the first node"
        port=$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
        INIT_METHOD=tcp://localhost:$port
    fi
    CLUSTER+=(--distributed-rank $((NODE_RANK * GPUS)) --distributed-init-method "$INIT_METHOD")
    ((!CPU)) || CLUSTER+=(--distributed-no-spawn --distributed-backend gloo)
}

# The fewest passes that divide the batch into equal shares, each fitting on a GPU.
equal_shares() {
    local flag=$1 batch=$2 limit=$3
    ((batch % WORLD == 0)) ||
        die "$flag: $batch samples cannot be divided equally among $WORLD GPUs"
    PASSES=1
    while ((batch % (WORLD * PASSES) || batch / (WORLD * PASSES) > limit)); do
        PASSES=$((PASSES + 1))
    done
    SHARE=$((batch / (WORLD * PASSES)))
    log "$WORLD processes x $SHARE samples x $PASSES passes = $batch samples an update"
}
