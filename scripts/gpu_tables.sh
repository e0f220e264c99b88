#!/usr/bin/env bash
# Measure again what docs/speed.md says of a GPU: one table after the other, the most valuable first.
#
#   gpu_tables.sh OUT [options]
#
# OUT/NAME.log has a table, and OUT/NAME.json its values. The script, started again, goes on with the
# table that it was making. A table that fails is named at the end, and the others are made.
#
#   --only NAME,...       these tables alone: generation-float16, recorded, training-bfloat16,
#                         attention, linear, flex, rotation, training-float16, masked-lm,
#                         generation-bfloat16, compiled, tests
#   --cpu                 tiny models and two rounds on a CPU, to try the script
#   options of ../examples/common/steps.sh --dry-run --help

set -euo pipefail
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SCRIPTS/../examples/common/steps.sh"
parse "$@"

CARD=CPU FAILED=() MADE=()
((CPU)) || CARD=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) ||
    ((DRY_RUN)) || die "no GPU here; --cpu tries the script without one"
OUT=$(absolute "$OUT")
alone "$OUT"

# table NAME COMMAND...: make a table, unless --only leaves it out.
table() {
    [[ -z $ONLY || ",$ONLY," == *",$1,"* ]] || return 0
    MADE+=("$1")
    step "$1" --settings "$CARD" --log "$OUT/$1.log" -- "${@:2}" || FAILED+=("$1")
}

# bench NAME FLAG...: a table of fairseq-posenc benchmark; of scripts/benchmark/peers.py, if the
# first flag is --peers.
bench() {
    local name=$1 program=(fairseq-posenc benchmark)
    local tiny=(--length 8 --size tiny --layers 1 --vocabulary 99)
    shift
    if [[ $1 == --peers ]]; then
        program=(python "$SCRIPTS/benchmark/peers.py")
        shift
    fi
    [[ " $* " != *" --lengths "* ]] || tiny=(--lengths 64)
    if ((CPU)); then
        set -- "$@" "${tiny[@]}" --device cpu --dtype float32 --threads 1 --batch 1 --repeat 2
    else
        set -- --device cuda "$@"
    fi
    table "$name" "${program[@]}" --json "$OUT/$name.json" "$@"
}

OURS="posenc_transformer --position-encoding"
FIRST=("$OURS learned" roformer_base t5bias_base alibi_base tupe_base)
ALL=("${FIRST[@]}" "$OURS tupe+t5" "$OURS shaw" shaw_base transformer_xl_base deberta_base
    roformer_v2_base gau_base performer_base)
STOCK=(--size base --layers 6 --skip-memory --archs transformer transformer)
TRAINING=(--jobs training --batch 64 --length 64)
GENERATION=(--jobs generation --batch 32 --length 32 --repeat 7)
ATTENTION=(--lengths "1024,4096,16384" --dtype bfloat16 --batch 4 --repeat 11)
T5="posenc_masked_lm --position-encoding t5 --attention-dropout 0"

bench generation-float16 "${GENERATION[@]}" --dtype float16 "${STOCK[@]}" "${ALL[@]}"
RECORDED=()
for model in "${ALL[@]}"; do
    RECORDED+=("$model --cuda-graphs")
done
bench recorded "${GENERATION[@]}" --dtype float16 "${STOCK[@]}" "${RECORDED[@]}"
bench training-bfloat16 "${TRAINING[@]}" --dtype bfloat16 --repeat 11 "${STOCK[@]}" "${ALL[@]}"
bench attention "${ATTENTION[@]}" --skip-memory --archs softmax favor "local --local-window 256" bigbird
bench linear "${ATTENTION[@]}" --archs softmax favor elu "cosformer --position-encoding none"
((CPU)) || bench flex --jobs masked-lm --size bert-base --layers 2 --batch 4 --length 512 2048 8192 \
    --dtype bfloat16 --repeat 11 --archs "roberta_base --attention-dropout 0" "$T5" "$T5 --attention-backend flex"
bench rotation --peers "${ATTENTION[@]}" --lengths "64,1024,16384" --skip-memory --archs softmax pytorch-rotation
bench training-float16 "${TRAINING[@]}" --dtype float16 --repeat 31 "${STOCK[@]}" "${FIRST[@]}"
PEERS=()
! python -c 'import transformers' 2>/dev/null || ((CPU)) || PEERS=(hf-roformer)
bench masked-lm --peers --jobs masked-lm --size bert-base --layers 12 --vocabulary 32678 --batch 32 \
    --length 512 --dtype bfloat16 --repeat 11 --archs roberta_base roberta_base roformer_masked_lm_base \
    tupe_a_masked_lm_base tupe_r_masked_lm_base roformer_v2_masked_lm_base \
    "gau_masked_lm_base --encoder-layers 24" "${PEERS[@]}"
bench generation-bfloat16 "${GENERATION[@]}" --dtype bfloat16 "${STOCK[@]}" "${ALL[@]}"
bench compiled --jobs training generation --size base --layers 6 --batch 32 --length 32 --dtype bfloat16 \
    --repeat 11 --skip-memory --archs roformer_base roformer_base "roformer_base --compile-layers"
((CPU)) || table tests python -m pytest -q -m gpu "$REPO/tests"

[[ -z $ONLY || ${#MADE[@]} -gt 0 ]] || die "--only $ONLY: no such table; see --help"
((!${#FAILED[@]})) || die "not made: ${FAILED[*]} (see the logs in $OUT)"
