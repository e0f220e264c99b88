#!/usr/bin/env bash
# Check the code with ruff and mypy, build the documentation, and run the fast tests, in an
# environment that setup.sh makes or completes.
#
#   test.sh [--all | --copies | --gpu] [arguments for pytest]     (VENV=.venv)
#
# --all       also the long tests
# --copies    only the core's tests, on copies of the package that lack one pack or all packs
# --gpu       only the tests that need a GPU
# The arguments are appended to pytest's: `test.sh -n 0 -k rotary` runs tests with rotary in their
# name, one at a time; `test.sh -m formulas` runs tests with this mark of pyproject.toml.

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

# The requirements of Snakemake and fairseq conflict, so Snakemake has an environment of its own.
OWN=$VENV/snakemake/bin/snakemake
if [[ -z ${SNAKEMAKE:-} && ! -x $OWN ]] && python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python -m venv "$VENV/snakemake"
    "$VENV/snakemake/bin/pip" install --quiet snakemake ||
        echo "test.sh: Snakemake cannot be installed; the tests of studies are skipped" >&2
fi
[[ -n ${SNAKEMAKE:-} || ! -x $OWN ]] || export SNAKEMAKE=$OWN

# For models this small, two processes of one thread each are faster than one process of two threads.
export OMP_NUM_THREADS=1
# Without bytecode every process recompiles PyTorch and fairseq, which takes longer than the tests.
unset PYTHONDONTWRITEBYTECODE
# With these, glibc keeps the memory of 4,096 x 4,096 matrices instead of requesting zeroed pages each time.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_TOP_PAD_=268435456
status=0
ruff check . || status=$?
ruff format --check . || status=$?
# Both end while the tests run.
mypy &
checks=("mypy $!")
if [[ -x $VENV/bin/mkdocs ]]; then # mkdocs needs Python 3.10
    mkdocs build --quiet --strict &
    checks+=("mkdocs $!")
fi
python -m pytest -n 2 --dist worksteal -m "$tests" "$@" || status=$?
for check in "${checks[@]}"; do
    wait "${check#* }" || { status=$? && echo "test.sh: ${check% *} failed, see above" >&2; }
done
exit "$status"
