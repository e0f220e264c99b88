# shellcheck shell=bash
# Functions for the commands of the Snakefile.
set -euo pipefail

# alone FOLDER: waits until no other process, such as one of an earlier start, works in FOLDER
alone() { mkdir -p "$1" && exec 9>>"$1/lock" && flock 9; }

# logged LOG COMMAND...: runs COMMAND; appends the command, its output and its seconds to LOG
logged() {
    local log=$1
    shift
    SECONDS=0
    (set -x && "$@") >>"$log" 2>&1 && echo "seconds $SECONDS" >>"$log"
}

# diverged LOG: succeeds if the training ended because its loss diverged, which counts as the worst result
diverged() { tail -n 20 "$1" | grep -q ^FloatingPointError || { tail -n 20 "$1" >&2 && return 1; }; }

# trained JSON OUTPUT: if JSON says that the training diverged, writes an empty OUTPUT and ends the job
trained() { ! grep -q '"error"' "$1" || { echo '{}' >"$2" && exit 0; }; }

# gpus N: chooses the N GPUs of this machine that the fewest jobs use
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
