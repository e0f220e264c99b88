#!/usr/bin/env bash
# Make a virtual environment with fairseq, fairseq_posenc and the packages of the recipes.
#
#   setup.sh [--tests] [--device auto|cpu|cuda|v100] [--dry-run] [VENV]     (.venv of this checkout)
#
# --tests also installs what the tests and the documentation need. --device selects the build of PyTorch:
# v100 is CUDA for V100 and older GPUs; auto fits this machine's GPU, or is cpu if there is no GPU.
# In an existing environment, the installed torch, numpy and fairseq are kept. A second run does
# nothing, or resumes the first run if that was interrupted.
#
# Environment variables: PYTHON, the interpreter for a new environment (python3); TORCH, NUMPY and
# FAIRSEQ, what to install instead of the versions chosen here, such as TORCH=torch==2.6.0 or
# FAIRSEQ=fairseq==0.12.2

set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
die() { printf 'setup.sh: error: %s\n' "$*" >&2 && exit 1; }
log() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

DEVICE=auto DRY_RUN=0 EXTRA=recipes,plots,deploy VENV=$REPO/.venv
while (($#)); do
    case $1 in
        --tests) EXTRA="test" ;;
        --device) DEVICE=${2:-} && shift ;;
        --dry-run) DRY_RUN=1 ;;
        --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit ;;
        -*) die "$1: unknown option; see --help" ;;
        *) VENV=$(realpath -ms "$1") ;;
    esac
    shift
done
case $DEVICE in auto | cpu | cuda | v100) ;; *) die "--device $DEVICE: expected auto, cpu, cuda or v100" ;; esac

CPU_INDEX=https://download.pytorch.org/whl/cpu # PyTorch's own
VENV_PYTHON=$VENV/bin/python LOG=$VENV/setup.log BUILD=$VENV/build-fairseq
# The marker holds the extras and a hash of all that determines what is installed, or "unfinished".
MARKER=$VENV/.fairseq_posenc
HASH=$(cat "$0" "$REPO/pyproject.toml" "$REPO/constraints/v100.txt" <(echo "$REPO") | sha256sum)
READY="$EXTRA ${HASH%% *}"
exit_if_ready() {
    ((!DRY_RUN)) && [[ -x $VENV_PYTHON && -f $MARKER ]] || return 0
    # an environment for the tests also has what the recipes need
    [[ $(<"$MARKER") != "$READY" && $(<"$MARKER") != "test ${HASH%% *}" ]] || { log "$VENV is ready" && exit; }
}
exit_if_ready

# GPUs with a compute capability up to 7.0 need an older PyTorch.
detect_device() {
    local gpus
    gpus=$(nvidia-smi --query-gpu=compute_cap,name --format=csv,noheader 2>/dev/null) ||
        gpus=$(nvidia-smi -L 2>/dev/null) || gpus=""
    case $gpus in
        "") echo cpu ;;
        [3-6].* | 7.0* | *$'\n'[3-6].* | *$'\n'7.0* | *V100*) echo v100 ;;
        *) echo cuda ;;
    esac
}

# Sets FAIRSEQ, NEEDS (its requirements), NUMPY and TORCH for this version of Python.
choose_versions() {
    local python=$1
    case $python in
        3.8 | 3.9) # the official release; Python 3.11 cannot import it
            FAIRSEQ=${FAIRSEQ:-fairseq==0.12.2} TORCH=${TORCH:-torch==1.13.1} ;;
        3.10) TORCH=${TORCH:-torch==2.4.1} ;;
        3.11 | 3.12) [[ $DEVICE != v100 ]] || TORCH=${TORCH:-torch==2.4.1} ;;
        3.13)
            NUMPY=${NUMPY:-"numpy>=2.1,<2.4"} # 2.1 is the first with wheels; 2.4 and later need repairs of fairseq
            [[ $DEVICE != v100 ]] || die "--device v100: no PyTorch for Python 3.13; use 3.10" ;;
        *) die "Python $python: fairseq runs on 3.8 to 3.13; give such a Python, as in PYTHON=python3.11" ;;
    esac
    TORCH=${TORCH:-torch==2.13.0} NUMPY=${NUMPY:-"numpy<2"}
    FAIRSEQ=${FAIRSEQ:-fairseq-fixed==0.12.3.1}
    NEEDS=(regex sacrebleu tqdm bitarray)
    case $FAIRSEQ in
        fairseq-fixed*) NEEDS+=(omegaconf==2.3.0 hydra-core==1.3.2 packaging scikit-learn) ;;
        *) NEEDS+=("omegaconf<2.1" "hydra-core>=1.0.7,<1.1" cffi) ;;
    esac
}

# Runs in the folder VENV, because a checkout in the user's folder could shadow installed packages.
in_venv() { (cd "$VENV" && exec "$VENV_PYTHON" "$@"); }
imports() { in_venv -c "import $1" >>"$LOG" 2>&1; }
pip() { in_venv -m pip --quiet --no-input --disable-pip-version-check "$@"; }
last_error() { grep -i error "$LOG" | tail -n 1 | cut -c 1-200 || true; }

# Gives each job its own process group, so that an error in this script also ends the compilers.
launch() {
    set -m
    "$@" >>"$LOG" 2>&1 &
    set +m
    JOB=$!
}

attend() {
    local text=$1 job=$2 start=$SECONDS shown=$SECONDS
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.2
        ((SECONDS < shown + 15)) || { shown=$SECONDS && log "    $text: $((shown - start)) s"; }
    done
    wait "$job"
}

stop_jobs() {
    local job
    for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done
    rm -rf "$BUILD"
}

install() {
    log "installing $1"
    launch pip install --no-compile "${@:2}"
    attend "$1" "$JOB"
}

# A killed pip leaves packages that a later pip takes for complete. pip writes INSTALLER last.
forget_half_installed() {
    in_venv - <<'END'
import pathlib, shutil, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
for folder in [*site.glob("*.dist-info"), *site.glob("~*")]:
    if not (folder / "INSTALLER").exists():
        shutil.rmtree(folder, ignore_errors=True)
END
}

# Never installs the CUDA build on a machine without a GPU: the build takes several gigabytes.
install_torch() {
    if [[ $DEVICE != cpu || $(uname) != Linux || $TORCH == *+* ]]; then
        install "$TORCH" "$TORCH" || die "$TORCH: $(last_error)"
        return
    fi
    install "$TORCH+cpu" "$TORCH+cpu" ||
        install "$TORCH+cpu from $CPU_INDEX" "$TORCH+cpu" \
            --extra-index-url "$CPU_INDEX" --timeout 15 --retries 1 ||
        die "$TORCH+cpu: neither your package index nor $CPU_INDEX has it;" \
            "give --device cuda for the CUDA build, or install torch into $VENV yourself"
}

# Builds fairseq with this torch and with numpy 2, whose headers also work for numpy 1. Never takes
# fairseq from pip's cache, where its build may be for other versions.
build_fork() {
    local wheel=(wheel --no-cache-dir --no-deps --no-build-isolation -w "$BUILD" "$FAIRSEQ")
    pip install --no-compile --target "$BUILD/tools" setuptools wheel cython "numpy>=2" || return
    unset CUDA_HOME
    export CFLAGS="-O2 -g0 -DNDEBUG -fwrapv" PYTHONPATH=$BUILD/tools
    # Compile two files at a time. With ninja or ccache, torch compiles one at a time: hide both tools.
    mkdir "$BUILD/bin"
    ln -s "$(type -P false)" "$BUILD/bin/ninja"
    printf '[build_ext]\nparallel = 2\n' >"$BUILD/build.cfg"
    PATH=$BUILD/bin:$PATH TORCH_NO_COMPILER_WRAPPER=1 DIST_EXTRA_CONFIG=$BUILD/build.cfg \
        pip "${wheel[@]}" || pip "${wheel[@]}"
}

need_compiler() {
    [[ $FAIRSEQ == fairseq-fixed* && $python == 3.12 ]] && return # there is a wheel
    command -v "${CXX:-g++}" >/dev/null || die "g++ is not installed, but fairseq needs it to be compiled"
    [[ -e $(in_venv -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]] ||
        die "Python.h is missing; install the development files of Python $python (python3-dev)"
}

[[ $DEVICE != auto ]] || DEVICE=$(detect_device)
interpreter=$VENV_PYTHON
if [[ ! -e $VENV_PYTHON ]]; then
    interpreter=${PYTHON:-python3}
    command -v "$interpreter" >/dev/null || die "PYTHON=$interpreter: no such command"
    [[ ! -e $VENV || -e $VENV/pyvenv.cfg || (-d $VENV && -z $(find "$VENV" -mindepth 1 ! -name .lock)) ]] ||
        die "$VENV: exists and is not a virtual environment"
fi
python=$("$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
choose_versions "$python"
log "Python $python, device $DEVICE: $FAIRSEQ, $TORCH, $NUMPY, unless already installed"
((!DRY_RUN)) || exit 0

mkdir -p "$VENV"
exec 9>"$VENV/.lock"
flock 9 # if several setup.sh start at once, one installs
exit_if_ready
trap stop_jobs EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ ! -e $VENV_PYTHON ]]; then
    log "making $VENV"
    "$interpreter" -m venv "$VENV" ||
        die "$interpreter -m venv $VENV failed; on Debian and Ubuntu: apt install python3-venv"
fi
: >"$LOG"
[[ ! -f $MARKER || $(<"$MARKER") != unfinished ]] || forget_half_installed
echo unfinished >"$MARKER"
imports pip || in_venv -m ensurepip >>"$LOG" 2>&1 || die "$VENV has no pip: $(last_error)"

imports torch || install_torch
imports numpy || install "$NUMPY" "$NUMPY" || die "$NUMPY: $(last_error)"
{ in_venv -m pip list --format freeze 2>>"$LOG" | grep -iE '^(torch|numpy)==' || true; } \
    >"$VENV/constraints.txt"

build=""
if imports fairseq; then
    NEEDS=()
    log "keeping fairseq in $(in_venv -c 'import fairseq; print(*fairseq.__path__)' 2>>"$LOG")"
elif pip show fairseq >/dev/null 2>&1 || pip show fairseq-fixed >/dev/null 2>&1; then
    die "the fairseq in $VENV cannot be imported; repair or remove it: $(last_error)"
elif need_compiler && [[ $FAIRSEQ == fairseq-fixed* ]]; then
    log "compiling $FAIRSEQ in the background"
    mkdir -p "$BUILD"
    launch build_fork
    build=$JOB
else
    install "pip<24.1, as newer ones refuse omegaconf 2.0" "pip<24.1" || die "pip: $(last_error)"
    install "$FAIRSEQ" --no-deps "$FAIRSEQ" || die "$FAIRSEQ: $(last_error)"
fi
install "setuptools" "setuptools>=64" wheel || die "setuptools: $(last_error)"
install "fairseq_posenc and tools" --constraint "$VENV/constraints.txt" --no-build-isolation \
    --editable "${REPO}[$EXTRA]" ${NEEDS[@]+"${NEEDS[@]}"} || die "$(last_error)"
if [[ -n $build ]]; then
    attend "compiling" "$build" || die "compiling $FAIRSEQ: $(last_error) (full log: $LOG)"
    install "$FAIRSEQ" --no-deps "$BUILD"/*.whl || die "$FAIRSEQ: $(last_error)"
fi

imports fairseq.data.data_utils_fast,fairseq.data.token_block_utils_fast,fairseq_posenc ||
    die "$VENV: installed, but importing it fails: $(last_error)"
printf '%s\n' "$READY" >"$MARKER.part"
mv "$MARKER.part" "$MARKER"
log "$VENV is ready after $SECONDS s; to use it: . $VENV/bin/activate"
