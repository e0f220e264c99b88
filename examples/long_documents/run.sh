#!/usr/bin/env bash
# Long documents: train short, continue long with several attentions, fine-tune, draw one figure.
#
#   run.sh DATA OUT [options]
#
# DATA is a folder with train.txt and valid.txt of WikiText. A language model and a masked language
# model with rotary are trained on short samples. Every system goes on from the same checkpoint for
# equally many updates of equally many tokens at every length; masked language models are then
# fine-tuned to tell whether headings belong to a long article (headings.py). It ends with
# OUT/results.csv, OUT/lengths.png and a table: time a token, memory and quality by length.
#
#   --start CHECKPOINT    go on with this masked language model instead of one that is trained here;
#                         short then is that model after as many updates at the short length, and all
#                         models are fine-tuned on short texts, too
#   --corpus DIR          the data-bin folder that it was trained on
#   --tokenizer FOLDER    instead: its tokenizer in the files of transformers, for the text in DATA
#   --systems "NAME ..."  of rotary yarn local bigbird favor memory, where memory (Transformer-XL) is
#                         for language models alone; linear, ntk and llama3 scale rotary otherwise,
#                         base gives it a larger base, and full adds nothing to the model's encoding
#                         (rotary yarn local bigbird favor memory)
#   --parts "language|masked ..."  one or both (language masked)
#   --small               a small model at 128, 512 and 1,024 tokens, for a CPU
#   --short N             tokens per sample to begin with (default: 512)
#   --lengths "N ..."     multiples of it to go on with (default: 2048 4096)
#   --updates N           updates at the short length (default: 20000)
#   --long-updates N      updates at each of the others (default: 2000)
#   --seeds "N ..."       seeds of fine-tuning (default: 1 2 3)
#   --epochs N            passes of fine-tuning (default: 5)
#   --tokens-per-gpu N    maximum tokens per GPU and pass (default: 16384)
#   options of ../common/cluster.sh --gpus --cpu
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

# All numbers: SAVES of a training, each with a validation; TOKENS in an update, on a GPU at once at
# most TOKENS_PER_GPU.
if ((SMALL)); then
    : "${SHORT:=128}" "${LENGTHS:=512 1024}" "${UPDATES:=200}" "${LONG_UPDATES:=20}" \
        "${TOKENS_PER_GPU:=4096}" "${EPOCHS:=2}" "${SEEDS:=1}"
    SAVES=1 TOKENS=4096 SHAPE="layers 2 embed-dim 64 ffn-embed-dim 256 attention-heads 2"
    WINDOW=64 BLOCK=16 SUBWORDS=(--bpe-operations 1000)
    LANGUAGE_RATE=2e-3 MASKED_RATE=1e-3 EXAMPLES=8 TUNING_RATES=5e-4
else
    : "${SHORT:=512}" "${LENGTHS:=2048 4096}" "${UPDATES:=20000}" "${LONG_UPDATES:=2000}" \
        "${TOKENS_PER_GPU:=16384}" "${EPOCHS:=5}" "${SEEDS:=1 2 3}"
    SAVES=10 TOKENS=131072 SHAPE="layers 12 embed-dim 768 ffn-embed-dim 3072 attention-heads 12"
    WINDOW=512 BLOCK=64 SUBWORDS=(--vocabulary-size 32678)
    LANGUAGE_RATE=6e-4 MASKED_RATE=1e-4 EXAMPLES=32 TUNING_RATES="2e-5 5e-5"
fi
# Set FLAGS, for fairseq-train, and SEGMENT, the tokens of a sample: system_flags SYSTEM LENGTH PART
# --linear-rotary inputs: the estimate of the attention that the short model was trained with.
# Of BERT's tokens, [CLS] is the one that all others see; language models have none.
system_flags() {
    local system=$1 length=$2 part=$3
    SEGMENT=$length FLAGS=()
    case $system in
        rotary | full) ;;
        base) FLAGS=(--rotary-base 160000) ;; # that of ModernBERT for 8,192 tokens
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
        *) die "--systems $system: expected some of rotary yarn local bigbird favor memory linear" \
            "ntk llama3 base full" ;;
    esac
}
if [[ -n $START ]]; then
    [[ -z ${GIVEN[--parts]:-} || $PARTS == masked ]] ||
        die "--parts $PARTS: with --start there is no other part than masked"
    [[ -n $CORPUS$TOKENIZER ]] || die "--start $START: give --corpus or --tokenizer, too"
    [[ -z $CORPUS || -z $TOKENIZER ]] || die "--tokenizer $TOKENIZER: give it or --corpus"
    useless "with --start" --updates
    PARTS=masked UPDATES=$LONG_UPDATES SHAPE="" SUBWORDS=(--tokenizer "$TOKENIZER")
else
    useless "without --start" --corpus --tokenizer
fi
for number in $LENGTHS; do
    ((number > SHORT && number % SHORT == 0)) ||
        die "--lengths $number: expected multiples of --short $SHORT"
    ((TOKENS % number == 0)) || die "--lengths $number: an update has $TOKENS tokens; give a divisor"
    ((TOKENS_PER_GPU >= number)) ||
        die "--tokens-per-gpu $TOKENS_PER_GPU: a sample has --lengths $number"
done
for system in $SYSTEMS; do
    system_flags "$system" "$((2 * SHORT))" language # an error for a wrong name, at once
done
DATA=$(absolute "$DATA") OUT=$(absolute "$OUT")
READY=$CORPUS CORPUS=${CORPUS:-$OUT/corpus/data-bin} OF_START=()
if [[ -n $START ]]; then
    need "$START" "--start $START: no such file"
    model_flags OF_START "$START"
fi
alone "$OUT"
pass OPTIONS --gpus --cpu --user-dir --dry-run
pass TUNING --cpu --user-dir
read -ra SHAPE <<<"$SHAPE"
export PYTHONPATH=$COMMON:$PYTHONPATH # results.py uses scores.py

# Prepare or fine-tune with the script of another recipe. Standard output is for the table. In a dry
# run there is nothing that it could read.
recipe() {
    run "$REPO/examples/$1" "${@:2}" >&$((2 - DRY_RUN))
}

# One training: one PART SYSTEM LENGTH UPDATES [flags for fairseq-train]; the folder is its name. The
# peak of its memory is kept. It goes on by itself, and is not repeated.
one() {
    local part=$1 system=$2 length=$3 updates=$4 folder=$OUT/$1/$2-$3 side=encoder measured=() flags=()
    [[ $part != language ]] || side=decoder
    ((DRY_RUN)) || measured=(fairseq-posenc script "$RECIPE/peak.py" "$folder/peak")
    for ((number = 0; number < ${#SHAPE[@]}; number += 2)); do
        flags+=("--$side-${SHAPE[number]}" "${SHAPE[number + 1]}")
    done
    # Validation reads as many tokens at once at every length, and memory as many streams.
    flags+=("${FLAGS[@]}" --batch-size-valid $((TOKENS_PER_GPU / length))
        --log-interval "$(fraction "$updates" 20)"
        --save-interval-updates "$(fraction "$updates" "$SAVES")" "${@:5}")
    if [[ $part == language ]]; then
        "${measured[@]}" "$REPO/examples/language_model/train.sh" rotary "$CORPUS" \
            --save-dir "$folder" --updates "$updates" --length "$SEGMENT" --batch "$TOKENS" \
            --tokens-per-gpu "$TOKENS_PER_GPU" "${OPTIONS[@]}" -- --lr "$LANGUAGE_RATE" "${flags[@]}"
    else
        "${measured[@]}" "$REPO/examples/bert_pretraining/train.sh" roformer "$CORPUS" --paper tupe \
            --save-dir "$folder" --updates "$updates" --batch $((TOKENS / SEGMENT)) \
            --samples-per-gpu $((TOKENS_PER_GPU / SEGMENT)) "${OPTIONS[@]}" -- "${OF_START[@]}" \
            --tokens-per-sample "$SEGMENT" ${START:+--max-positions "$SEGMENT"} \
            --lr "$MASKED_RATE" "${flags[@]}"
    fi >&$((2 - DRY_RUN))
}

# Fine-tune the masked language model NAME-LENGTH on texts of that length, or of another: tune NAME
# LENGTH [OTHER].
tune() {
    local model=$1-$2 length=${3:-$2} rows
    rows=$(fraction "$TOKENS_PER_GPU" "$length")
    ((rows <= EXAMPLES)) || rows=$EXAMPLES
    recipe glue/finetune.sh "$OUT/task/belongs" "$OUT/masked/$model/checkpoint_last.pt" \
        "$OUT/tuned" --name "$model${3:+-short}" --seeds "$SEEDS" --epochs "$EPOCHS" \
        --lr "$TUNING_RATES" --batch "$EXAMPLES" --no-model "${TUNING[@]}" \
        -- --max-positions "$length" --batch-size "$rows" \
        --update-freq $(((EXAMPLES + rows - 1) / rows))
}

[[ -n $READY ]] || recipe bert_pretraining/prepare.sh "$DATA" "$OUT/corpus" --wikitext \
    --max-line $((SHORT - 2)) "${SUBWORDS[@]}"
for part in $PARTS; do
    system_flags rotary "$SHORT" "$part"
    one "$part" short "$SHORT" "$UPDATES" ${START:+--finetune-from-model "$START"}
    for length in $LENGTHS; do
        for system in $SYSTEMS; do
            [[ $part/$system != masked/memory ]] || continue
            system_flags "$system" "$length" "$part"
            one "$part" "$system" "$length" "$LONG_UPDATES" \
                --finetune-from-model "${START:-$OUT/$part/short-$SHORT/checkpoint_last.pt}"
        done
    done
done

if [[ " $PARTS " == *" masked "* ]]; then
    longest=$(xargs -n 1 <<<"$LENGTHS" | sort -n | tail -n 1)
    step headings --inputs "$DATA"/{train,valid}.txt --outputs "$OUT"/headings/{train,valid}.tsv -- \
        fairseq-posenc script "$RECIPE/headings.py" "$DATA" "$OUT/headings" --words "$longest"
    run cp "$RECIPE/tasks.yaml" "$OUT/headings/tasks.yaml"
    recipe glue/prepare.sh "$OUT/headings/tasks.yaml" "$CORPUS" "$OUT/task"
    tune short "$SHORT"
    for length in $LENGTHS; do
        for system in $SYSTEMS; do
            [[ $system != memory ]] || continue
            tune "$system" "$length"
            [[ -z $START ]] || tune "$system" "$length" "$SHORT"
        done
    done
fi
run fairseq-posenc script "$RECIPE/results.py" "$OUT"
