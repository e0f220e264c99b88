#!/usr/bin/env bash
# Long documents: train short, continue long with several attentions, fine-tune, draw one figure.
#
#   run.sh DATA OUT [options]
#
# DATA is a folder with train.txt and valid.txt of WikiText. A language model and a masked language
# model with rotary are trained on short samples. Every system goes on from the same checkpoint for
# equally many updates of equally many tokens at every length; masked language models are then
# fine-tuned to tell whether headings belong to a long article (headings.py). It ends with
# OUT/results.csv, OUT/lengths.png and a table: time a token, memory and quality by length. If
# interrupted, run it again to resume. All numbers are at the top of this script.
#
#   --systems "X ..."     of rotary yarn local bigbird favor memory (all), and linear ntk llama3, other
#                         scalings of rotary; memory (Transformer-XL) is for language models alone
#   --parts "X ..."       language, masked or both ("language masked")
#   --small               a small model at 128, 512 and 1,024 tokens, for a CPU
#   --short N             tokens per sample to begin with (512)
#   --lengths "N ..."     multiples of it to go on with (2048 4096)
#   --updates N           updates at the short length (20000)
#   --long-updates N      updates at each of the others (2000)
#   --seeds "N ..."       seeds of fine-tuning (1 2 3)
#   --epochs N            passes of fine-tuning (5)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (16384)
#   --gpus N              GPUs on this node (all visible ones)
#   --cpu                 one process without GPU or fp16
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

# All numbers, of the large setting and of --small.
ALL="rotary yarn local bigbird favor memory"

use_settings() {
    SEEDS="1 2 3" # of fine-tuning
    case $1 in
        base)
            SHORT=512 LENGTHS="2048 4096" UPDATES=20000 LONG_UPDATES=2000
            SAVES=10 # of a training, each with a validation
            TOKENS=131072 LIMIT=16384 # in an update; on a GPU at once
            SHAPE="layers 12 embed-dim 768 ffn-embed-dim 3072 attention-heads 12"
            WINDOW=512 BLOCK=64
            SUBWORDS=(--vocabulary-size 32678)
            LANGUAGE_RATE=6e-4 MASKED_RATE=1e-4
            EPOCHS=5 EXAMPLES=32 TUNING_RATES="2e-5 5e-5" ;;
        small)
            SHORT=128 LENGTHS="512 1024" UPDATES=200 LONG_UPDATES=20 SAVES=1
            TOKENS=4096 LIMIT=4096
            SHAPE="layers 2 embed-dim 64 ffn-embed-dim 256 attention-heads 2"
            WINDOW=64 BLOCK=16
            SUBWORDS=(--bpe-operations 1000)
            LANGUAGE_RATE=2e-3 MASKED_RATE=1e-3
            EPOCHS=2 EXAMPLES=8 TUNING_RATES=5e-4 SEEDS=1 ;;
    esac
}

# Set FLAGS, for fairseq-train, and SEGMENT, the tokens of a sample: system_flags SYSTEM LENGTH PART
# --linear-rotary inputs: the estimate of the attention that the short model was trained with.
# Of BERT's tokens, [CLS] is the one that all others see; language models have none.
system_flags() {
    local system=$1 length=$2 part=$3
    SEGMENT=$length FLAGS=()
    case $system in
        rotary) ;;
        linear | ntk | yarn | llama3)
            FLAGS=(--rotary-scaling "$system" --rotary-original-length "$SHORT"
                --rotary-scaling-factor $((length / SHORT))) ;;
        local)
            FLAGS=(--attention local --local-window "$WINDOW")
            [[ $part == language ]] || FLAGS+=(--local-global-tokens 1) ;;
        bigbird) FLAGS=(--attention bigbird --bigbird-block-size "$BLOCK") ;;
        favor) FLAGS=(--attention favor --linear-rotary inputs) ;;
        memory)
            SEGMENT=$SHORT
            FLAGS=(--task language_modeling_with_memory --memory-length $((length - SHORT))) ;;
        *) die "--systems $system: expected some of $ALL linear ntk llama3" ;;
    esac
}

DATA="" OUT="" SYSTEMS=$ALL PARTS="language masked" DRY=() DEVICE=() GPUS=() PLUGIN=()
use_settings base
[[ " $* " != *" --small "* ]] || use_settings small # options may come before or after it
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; DRY=("$1"); shift ;;
        --small) shift ;;
        --systems) SYSTEMS=$(value "$@"); shift 2 ;;
        --parts) PARTS=$(value "$@"); shift 2 ;;
        --short) SHORT=$(value "$@"); shift 2 ;;
        --lengths) LENGTHS=$(value "$@"); shift 2 ;;
        --updates) UPDATES=$(value "$@"); shift 2 ;;
        --long-updates) LONG_UPDATES=$(value "$@"); shift 2 ;;
        --seeds) SEEDS=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --tokens-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --cpu) DEVICE=("$1"); shift ;;
        --gpus) GPUS=("$1" "$(value "$@")"); shift 2 ;;
        --user-dir) PLUGIN=("$1" "$(value "$@")"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder of WikiText and the output folder; see --help"
for part in $PARTS; do
    [[ $part == language || $part == masked ]] || die "--parts $part: expected language or masked"
done
whole_number --short "$SHORT"
for number in $LENGTHS; do
    whole_number --lengths "$number"
    ((number > SHORT && number % SHORT == 0)) ||
        die "--lengths $number: expected multiples of --short $SHORT"
    ((TOKENS % number == 0)) || die "--lengths $number: an update has $TOKENS tokens; give a divisor"
    ((LIMIT >= number)) || die "--tokens-per-gpu $LIMIT: a sample has --lengths $number"
done
for system in $SYSTEMS; do
    system_flags "$system" "$((2 * SHORT))" language # an error for a wrong name, at once
done
whole_number --updates "$UPDATES"
whole_number --long-updates "$LONG_UPDATES"
need python fairseq-train
DATA=$(absolute "$DATA") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
COMMANDS=("${GPUS[@]}" "${DEVICE[@]}" "${PLUGIN[@]}" "${DRY[@]}") # options of all train.sh
CORPUS=$OUT/corpus/data-bin

# Prepare or fine-tune with the script of another recipe.  Standard output is for the table.  In a dry
# run there is nothing that it could read.
recipe() {
    local script=$REPO/examples/$1
    shift
    if ((DRY_RUN)); then run "$script" "$@"; else interruptible "$script" "$@" >&2; fi
}

shape() {
    local side=$1 name number
    FORM=()
    while read -r name number; do
        FORM+=("--$side-$name" "$number")
    done < <(xargs -n 2 <<<"$SHAPE")
}

# Train in $1 with train.sh, whose arguments follow, unless it is done, and keep the peak memory.
train() {
    local folder=$1 name measured=()
    shift
    name=${folder#"$OUT"/}
    ((DRY_RUN)) || measured=(python "$RECIPE/peak.py" "$folder/peak")
    hold "$folder"
    step "train-${name/\//-}" "$folder/checkpoint_last.pt" -- \
        train_once OUT "$folder" "${measured[@]}" "$@"
    release
}

# One training: one PART SYSTEM LENGTH UPDATES [flags for fairseq-train]; the folder is its name.
one() {
    local part=$1 system=$2 length=$3 updates=$4 folder=$OUT/$1/$2-$3 flags
    shift 4
    if [[ $part == language ]]; then shape decoder; else shape encoder; fi
    # Validation reads as many tokens at once at every length, and memory as many streams.
    flags=("${FORM[@]}" "${FLAGS[@]}" --batch-size-valid $((LIMIT / length))
        --log-interval "$(fraction "$updates" 20)"
        --save-interval-updates "$(fraction "$updates" "$SAVES")" "$@")
    if [[ $part == language ]]; then
        train "$folder" "$REPO/examples/language_model/train.sh" rotary "$CORPUS" \
            --save-dir "$folder" --updates "$updates" --length "$SEGMENT" --batch "$TOKENS" \
            --tokens-per-gpu "$LIMIT" "${COMMANDS[@]}" -- --lr "$LANGUAGE_RATE" "${flags[@]}"
    else
        train "$folder" "$REPO/examples/bert_pretraining/train.sh" roformer "$CORPUS" --paper tupe \
            --save-dir "$folder" --updates "$updates" --batch $((TOKENS / SEGMENT)) \
            --samples-per-gpu $((LIMIT / SEGMENT)) "${COMMANDS[@]}" -- \
            --tokens-per-sample "$SEGMENT" --lr "$MASKED_RATE" "${flags[@]}"
    fi
}

# Fine-tune the masked language model NAME-LENGTH on texts of that length.
tune() {
    local name=$1 length=$2 rows passes
    rows=$(fraction "$LIMIT" "$length")
    ((rows <= EXAMPLES)) || rows=$EXAMPLES
    passes=$(((EXAMPLES + rows - 1) / rows))
    recipe glue/finetune.sh "$OUT/task/belongs" "$OUT/masked/$name-$length/checkpoint_last.pt" \
        "$OUT/tuned" --name "$name-$length" --seeds "$SEEDS" --epochs "$EPOCHS" \
        --lr "$TUNING_RATES" --batch "$EXAMPLES" --no-model "${DEVICE[@]}" "${PLUGIN[@]}" \
        -- --max-positions "$length" --batch-size "$rows" --update-freq "$passes"
}

recipe bert_pretraining/prepare.sh "$DATA" "$OUT/corpus" --wikitext --max-line $((SHORT - 2)) \
    "${SUBWORDS[@]}"

GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$CORPUS"/{dict.txt,train.idx})$'\n'
use_data "$CORPUS"
for part in $PARTS; do
    chain "$GIVEN"
    system_flags rotary "$SHORT" "$part"
    one "$part" short "$SHORT" "$UPDATES"
    begun=$STEP_CHAIN
    for length in $LENGTHS; do
        for system in $SYSTEMS; do
            [[ $part/$system != masked/memory ]] || continue
            chain "$begun"
            system_flags "$system" "$length" "$part"
            one "$part" "$system" "$length" "$LONG_UPDATES" \
                --finetune-from-model "$OUT/$part/short-$SHORT/checkpoint_last.pt"
        done
    done
done

if [[ " $PARTS " == *" masked "* ]]; then
    chain ""
    longest=$(xargs -n 1 <<<"$LENGTHS" | sort -n | tail -n 1)
    step headings "$OUT"/headings/{train,valid}.tsv -- \
        run python "$RECIPE/headings.py" "$DATA" "$OUT/headings" --words "$longest"
    run cp "$RECIPE/tasks.yaml" "$OUT/headings/tasks.yaml"
    recipe glue/prepare.sh "$OUT/headings/tasks.yaml" "$CORPUS" "$OUT/task"
    tune short "$SHORT"
    for length in $LENGTHS; do
        for system in $SYSTEMS; do
            [[ $system == memory ]] || tune "$system" "$length"
        done
    done
fi
run plugin_python "$RECIPE/results.py" "$OUT"
