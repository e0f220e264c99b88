#!/usr/bin/env bash
# From scratch to a trained RoFormer: install, make a toy corpus, train, translate, score.
#
#   quickstart.sh [options]
#
# Runs on the CPU. Finished steps are kept: a second run only prints the results, and a changed
# option repeats the steps that depend on it. All files except the environment go to the output
# folder.
#
#   --arch NAME       architecture (roformer_tiny)
#   --seed N          seed of corpus and training (1)
#   --output DIR      folder for data, checkpoints and results (runs/quickstart)
#   --venv DIR        environment to create or use (.venv), see setup.sh
#   --pairs N         sentence pairs to train on (10000)
#   --epochs N        passes over them; the last 5, or all if there are fewer, are averaged (10)
#   --min-bleu X      fail if BLEU is lower (90)
#   --help            this text

set -euo pipefail
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../examples/common/lib.sh
. "$SCRIPTS/../examples/common/lib.sh"

ARCH=roformer_tiny SEED=1 OUT=$REPO/runs/quickstart VENV=$REPO/.venv
PAIRS=10000 EPOCHS=10 MIN_BLEU=90 AVERAGE=5
while (($#)); do
    case $1 in
        --help) usage ;;
        --arch) ARCH=$(value "$@"); shift 2 ;;
        --seed) SEED=$(value "$@"); shift 2 ;;
        --output) OUT=$(value "$@"); shift 2 ;;
        --venv) VENV=$(value "$@"); shift 2 ;;
        --pairs) PAIRS=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --min-bleu) MIN_BLEU=$(value "$@"); shift 2 ;;
        *) unknown_option "$1" ;;
    esac
done
whole_number --seed "$SEED"
whole_number --pairs "$PAIRS"
whole_number --epochs "$EPOCHS"
((EPOCHS >= AVERAGE)) || AVERAGE=$EPOCHS
[[ $MIN_BLEU =~ ^[0-9]+([.][0-9]+)?$ ]] || die "--min-bleu $MIN_BLEU: expected a number"
OUT=$(absolute "$OUT") VENV=$(absolute "$VENV")
[[ ! -d $OUT || -d $OUT/steps || -z $(contents "$OUT") ]] ||
    die "--output $OUT: contains other files; give a new folder"

DATA=$OUT/data BINARY=$OUT/data-bin CHECKPOINTS=$OUT/checkpoints STEPS=$OUT/steps
USER_DIR=$REPO/fairseq_posenc TOY=$REPO/examples/toy
SPLITS=(train valid test)
# A model of this size gains nothing from more threads, and is slower with one per core.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

title() {
    STAGE=$((${STAGE:-0} + 1))
    printf '\n[%3d s] %d/9 %s\n' "$SECONDS" "$STAGE" "$1"
}

# Part of the key, so that a changed program repeats the steps that run it.
checksum() { cat "$@" | sha256sum | cut -c 1-12; }

# Output goes to the log file, errors to the user.
quietly() {
    local file=$1
    shift
    printf '+ %s\n' "$*"
    interruptible "$@" >"$file" 2>&1 || die "$1 failed: $(tail -n 1 "$file") (full log: $file)"
}

make_corpus() { run python "$TOY/corpus.py" "$DATA" --train "$PAIRS" --seed "$SEED"; }

split_words() {
    local lang split
    for lang in en de; do
        for split in "${SPLITS[@]}"; do
            run python "$COMMON/moses.py" tokenize --lang "$lang" --workers 2 \
                "$DATA/$split.$lang" "$DATA/$split.tok.$lang"
        done
    done
    run python "$COMMON/bpe.py" learn --operations "$1" \
        "$DATA/codes" "$DATA/train.tok.en" "$DATA/train.tok.de"
    for lang in en de; do
        for split in "${SPLITS[@]}"; do
            run python "$COMMON/bpe.py" apply --workers 2 \
                "$DATA/codes" "$DATA/$split.tok.$lang" "$DATA/$split.bpe.$lang"
        done
    done
}

binarize() {
    rm -rf "$BINARY"
    quietly "$OUT/preprocess.log" fairseq-preprocess --source-lang en --target-lang de \
        --trainpref "$DATA/train.bpe" --validpref "$DATA/valid.bpe" --testpref "$DATA/test.bpe" \
        --joined-dictionary --destdir "$BINARY"
}

# Prints a line per epoch and keeps the full log.
train() {
    rm -rf "$CHECKPOINTS"
    printf '+ %s\n' "$*"
    interruptible epochs_of "$@" ||
        die "training failed: $(tail -n 1 "$OUT/train.log") (full log: $OUT/train.log)"
}

epochs_of() {
    "$@" 2>&1 | tee "$OUT/train.log" | awk -v epochs="$EPOCHS" '
        /\| valid \|/ {
            match($0, /"epoch": [0-9]+/); epoch = substr($0, RSTART + 9, RLENGTH - 9)
            match($0, /"valid_loss": "[0-9.]+/); loss = substr($0, RSTART + 15, RLENGTH - 15)
            printf "    epoch %s of %s, loss on valid %s\n", epoch, epochs, loss; fflush()
        }'
}

translate() {
    # Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
    quietly "$OUT/generate.log" fairseq-generate "$BINARY" --user-dir "$USER_DIR" --cpu \
        --path "$OUT/average.pt" --beam 4 --lenpen 0.6 --remove-bpe --max-tokens 4000 \
        --required-batch-size-multiple 1 --results-path "$OUT"
    # Restore the order of the test set, which batching by length changed.
    grep '^H-' "$OUT/generate-test.txt" | cut -c 3- | sort -n | cut -f 3 >"$DATA/output.tok.de"
    run python "$COMMON/moses.py" detokenize --lang de --workers 1 \
        "$DATA/output.tok.de" "$OUT/output.de"
}

title "environment"
hold "$OUT"
interruptible "$SCRIPTS/setup.sh" "$VENV"
PATH=$VENV/bin:$PATH

title "corpus of $PAIRS pairs"
step corpus "$DATA"/{train,valid,test}.{en,de} -- \
    make_corpus "$PAIRS" "$SEED" "$(checksum "$TOY"/*.py)"

title "words and subwords"
step subwords "$DATA"/{codes,{train,valid,test}.bpe.{en,de}} -- \
    split_words 2000 "$(checksum "$COMMON"/{moses,bpe,text}.py)"

title "binary data"
step binary "$BINARY"/{dict.{en,de}.txt,{train,valid,test}.en-de.{en,de}.{bin,idx}} -- binarize

title "training $ARCH"
shopt -s globstar
STEP_CHAIN+="plug-in $(checksum "$USER_DIR"/**/*.py)"$'\n'
step training "$CHECKPOINTS/checkpoint_last.pt" "$OUT/train.log" -- train \
    fairseq-train "$BINARY" --user-dir "$USER_DIR" --arch "$ARCH" \
    --share-all-embeddings --dropout 0.1 --cpu --num-workers 0 --seed "$SEED" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas "(0.9, 0.98)" --lr 0.0025 --lr-scheduler inverse_sqrt \
    --warmup-updates 150 --max-tokens 2000 --required-batch-size-multiple 1 \
    --max-epoch "$EPOCHS" --save-dir "$CHECKPOINTS" --keep-last-epochs "$AVERAGE" \
    --log-format json --log-interval 20

title "average of the last $AVERAGE checkpoints"
step average "$OUT/average.pt" -- run fairseq-posenc average --inputs "$CHECKPOINTS" \
    --num-epoch-checkpoints "$AVERAGE" --checkpoint-upper-bound "$EPOCHS" \
    --output "$OUT/average.pt"

title "translation of the test set, beam 4"
step translation "$OUT/output.de" -- translate

title "results"
run fairseq-posenc plot training --output "$OUT/training.png" --labels "$ARCH" \
    -- "$OUT/train.log"
for line in 1 2 3 4 5; do
    printf '\n'
    for text in "source   :$DATA/test.en" "output   :$OUT/output.de" "reference:$DATA/test.de"; do
        printf '    %s %s\n' "${text%%:*}" "$(sed -n "${line}p" "${text#*:}")"
    done
done
printf '\n'
run sacrebleu "$DATA/test.de" -i "$OUT/output.de" -m bleu -f text -w 2 | tee "$OUT/bleu.txt"
BLEU=$(sed -E 's/^[^=]* = ([0-9.]+) .*/\1/' "$OUT/bleu.txt")  # the first number, not a length
awk -v bleu="$BLEU" -v least="$MIN_BLEU" 'BEGIN { exit !(bleu >= least) }' ||
    die "BLEU $BLEU is below $MIN_BLEU"

title "model folder"
pack_model --output "$OUT/model" "$OUT/average.pt" --data "$BINARY" --tokenizer moses \
    --subwords subword-nmt --subword-file "$DATA/codes" \
    --about "A toy grammar, $PAIRS pairs, seed $SEED." --scores "$OUT/bleu.txt"
sed -n 6p "$DATA/test.en" | run fairseq-posenc translate --model "$OUT/model"
printf '[%3d s] curves %s, model %s: fairseq-posenc translate --model %s <text\n' \
    "$SECONDS" "$OUT/training.png" "$OUT/model" "$OUT/model"
