#!/usr/bin/env bash
# Run the quickstart and the core tests with every supported combination of Python, PyTorch, fairseq
# and NumPy, and print a table of the results.
#
#   matrix.sh [NAME ...]     (all; an unknown name lists them)
#
# setup.sh makes the environments in runs/matrix; they are removed afterwards, but logs and results stay.
# A failure becomes a row of the table, and does not end the run. The table keeps rows of earlier runs.
# Interpreters are looked up as python3.8 and so on; with pyenv, name the versions to use, as in
# PYENV_VERSION=3.8.18:3.10.13. DEVICE is the --device of setup.sh (cpu); KEEP=1 keeps the environments.

set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ROOT=$REPO/runs/matrix

# name, Python, PyTorch, fairseq, NumPy
ENVIRONMENTS=(
    "official-3.8 3.8 torch==1.12.1 fairseq==0.12.2 numpy<2"
    "official-3.9 3.9 torch==1.13.1 fairseq==0.12.2 numpy<2"
    "official-3.10 3.10 torch==1.13.1 fairseq==0.12.2 numpy<2"
    "v100-3.10 3.10 torch==2.4.1 fairseq-fixed==0.12.3.1 numpy==1.26.4"
    "fork-3.11 3.11 torch==2.13.0 fairseq-fixed==0.12.3.1 numpy<2"
    "fork-3.12 3.12 torch==2.13.0 fairseq-fixed==0.12.3.1 numpy<2"
    "fork-3.13 3.13 torch==2.13.0 fairseq-fixed==0.12.3.1 numpy>=2.1,<2.4"
    "numpy2-3.11 3.11 torch==2.13.0 fairseq-fixed==0.12.3.1 numpy>=2.4"
)
# Folders and single tests that together use everything that differs between versions; test.sh runs all tests.
COMMAND_TEST=test_training_resuming_averaging_and_generating
CORE_TESTS=(
    tests/{attention,basics,compat,configuration,encodings,models,packs} tests/test_properties.py
    tests/checkpoints/test_reading.py "tests/commands/test_translation.py::$COMMAND_TEST"
)
# Slow tests that resemble tests that are run.
LEFT_OUT="half_precision_stays or mixed_precision or cached_decoding_equals or prompts_padded"

ALL="${ENVIRONMENTS[*]%% *}"
for name; do
    [[ " $ALL " == *" $name "* ]] || { echo "matrix.sh: error: $name: expected one of $ALL" >&2 && exit 1; }
done
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Prints the last non-empty line of a log, without local paths and characters that break a table.
reason() {
    grep -v '^ *$' "$1" | tail -n 1 | sed "s| (full log: .*||; s|$REPO/||g" | tr '|' '/' |
        cut -c 1-200
}

# Prints four cells: the installed versions of Python, PyTorch, NumPy and fairseq.
versions() {
    (cd "$1" && bin/python -V && bin/python -m pip list --format freeze) | awk -F '[= ]+' '
        { found[$1] = $2 }
        $1 ~ /^fairseq(-fixed)?$/ { fairseq = $1 " " $2 }
        END { print found["Python"] " | " found["torch"] " | " found["numpy"] " | " fairseq }'
}

# Prints the BLEU, or what failed. After two minutes the BLEU has not converged, but is similar everywhere.
quickstart() {
    local folder=$1
    if VENV=$folder/venv PAIRS=6000 EPOCHS=8 MIN_BLEU=0 "$REPO/scripts/quickstart.sh" \
        roformer_tiny "$folder/quickstart" >"$folder/quickstart.log" 2>&1; then
        sed -nE 's/^BLEU[^=]* = ([0-9.]+) .*/\1/p' "$folder/quickstart/bleu.txt"
    else
        printf 'failed: %s' "$(reason "$folder/quickstart.log")"
    fi
}

# Prints how many tests passed, failed and were skipped, or why none ran.
core_tests() (
    cd "$REPO"
    unset PYTHONDONTWRITEBYTECODE
    PATH=$1/venv/bin:$PATH
    python -m pytest -q -n 0 -m "not slow and not copies and not gpu" -p no:cacheprovider \
        -k "not ($LEFT_OUT)" "${CORE_TESTS[@]}" >"$1/tests.log" 2>&1 || true
    found=$(tail -n 1 "$1/tests.log" | grep -oE '[0-9]+ (passed|failed|skipped|errors?)' | paste -sd, |
        sed 's/,/, /g') || found="failed: $(reason "$1/tests.log")"
    printf '%s' "$found"
)

# Writes the row of one environment to its folder.
run_environment() {
    local name=$1 python=python$2 folder=$ROOT/$1 start=$SECONDS found
    mkdir -p "$folder"
    if ! "$python" -c '' 2>/dev/null; then
        found="$2 | | | | not installed | |"
    elif ! TORCH=$3 FAIRSEQ=$4 NUMPY=$5 PYTHON=$python "$REPO/scripts/setup.sh" \
        --tests --device "${DEVICE:-cpu}" "$folder/venv" 2>"$folder/setup.log"; then
        found="$2 | $3 | $5 | $4 | setup failed: $(reason "$folder/setup.log") | |"
    else
        start=$SECONDS # downloads and compilation do not count
        found="$(versions "$folder/venv") | $(quickstart "$folder") | $(core_tests "$folder") |"
    fi
    printf '%s\n' "| $name | $found $((SECONDS - start)) | $(date +%F) |" >"$folder/row"
    ((${KEEP:-0})) || rm -rf "$folder/venv"
}

table() {
    printf '%s\n' "| name | Python | PyTorch | NumPy | fairseq | BLEU | core tests | seconds | date |" \
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    local environment name python torch fairseq numpy
    for environment in "${ENVIRONMENTS[@]}"; do
        read -r name python torch fairseq numpy <<<"$environment"
        cat "$ROOT/$name/row" 2>/dev/null ||
            printf '%s\n' "| $name | $python | $torch | $numpy | $fairseq | not run | | | |"
    done
}

for environment in "${ENVIRONMENTS[@]}"; do
    read -r name python torch fairseq numpy <<<"$environment"
    [[ $# == 0 || " $* " == *" $name "* ]] || continue
    run_environment "$name" "$python" "$torch" "$fairseq" "$numpy"
    cat "$ROOT/$name/row" >&2
done
table
