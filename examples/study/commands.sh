# shellcheck shell=bash
# What the commands of the Snakefile share.
set -euo pipefail

# alone FOLDER: waits until no other process works there, such as one of an earlier start
alone() { mkdir -p "$1" && exec 9>>"$1/lock" && flock 9; }

# logged LOG COMMAND...: appends the command, what it prints, and its seconds to a log
logged() {
    local log=$1
    shift
    SECONDS=0
    (set -x && "$@") >>"$log" 2>&1 && echo "seconds $SECONDS" >>"$log"
}

# diverged LOG: whether a training ended because its loss diverged; this counts as the worst result
diverged() { tail -n 20 "$1" | grep -q ^FloatingPointError || { tail -n 20 "$1" >&2 && return 1; }; }

# trained JSON OUTPUT: if the training has diverged, writes an empty OUTPUT and ends the job
trained() { ! grep -q '"error"' "$1" || { echo '{}' >"$2" && exit 0; }; }

# gpus N: chooses N of this machine's GPUs, each shared by as few jobs as possible
gpus() {
    local all got=() slot lock
    [[ $1 != 0 && -z ${SLURM_JOB_ID:-} ]] || return 0
    IFS=, read -ra all <<<"${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}"
    for ((slot = 0; ${#got[@]} < $1; slot++)); do
        exec {lock}>>"${TMPDIR:-/tmp}/study-gpu-$slot.lock"
        ! flock -n "$lock" || got+=("${all[slot % ${#all[@]}]}")
    done
    CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${got[*]}")
    export CUDA_VISIBLE_DEVICES
}
