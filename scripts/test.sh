#!/usr/bin/env bash
# Check the code with ruff and mypy, build the documentation, and run the fast tests, in an
# environment that setup.sh makes or completes.
#
#   test.sh [--all | --copies | --gpu] [arguments for pytest]     (VENV=.venv)
#
# --all       the long tests, too
# --copies    only the core's tests, on copies without one pack and without all packs
# --gpu       only the tests that need a GPU
# Arguments are appended to those of pytest: `test.sh -n 0 -k rotary` runs tests with rotary in their
# name, one at a time; `test.sh -m formulas` runs those with a mark of pyproject.toml.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests="not slow and not copies and not gpu"
case ${1:-} in
    --all) tests="not copies and not gpu" ;;
    --copies | --gpu) tests=${1#--} ;;
    *) set -- "" "$@" ;;
esac
shift
VENV=$(realpath -ms "${VENV:-.venv}")
scripts/setup.sh --tests "$VENV"
PATH=$VENV/bin:$PATH

# What Snakemake needs contradicts what fairseq needs, so it has an environment of its own.
OWN=$VENV/snakemake/bin/snakemake
if [[ -z ${SNAKEMAKE:-} && ! -x $OWN ]] && python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python -m venv "$VENV/snakemake"
    "$VENV/snakemake/bin/pip" install --quiet snakemake ||
        echo "test.sh: Snakemake cannot be installed; the tests of studies are skipped" >&2
fi
[[ -n ${SNAKEMAKE:-} || ! -x $OWN ]] || export SNAKEMAKE=$OWN

# Two processes of one thread each: faster than one process of two for models this small.
export OMP_NUM_THREADS=1
# Without bytecode every process recompiles PyTorch and fairseq, which takes longer than the tests.
unset PYTHONDONTWRITEBYTECODE
# glibc keeps the memory of matrices of 4,096 x 4,096 instead of asking for zeroed pages each time.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_TOP_PAD_=268435456
status=0
ruff check . || status=$?
ruff format --check . || status=$?
mypy &
types=$!
if [[ -x $VENV/bin/mkdocs ]]; then # needs Python 3.10
    mkdocs build --quiet --strict || status=$?
fi
wait "$types" || status=$?
python -m pytest -n 2 --dist worksteal -m "$tests" "$@" || status=$?
exit "$status"
