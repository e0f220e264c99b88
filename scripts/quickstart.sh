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
#   --output DIR      folder for data, checkpoints and results (default: runs/quickstart)
#   --venv DIR        environment to create or use, see setup.sh (default: .venv)
#   --pairs N         sentence pairs to train on (10000)
#   --epochs N        passes over them; the last 5, or all if there are fewer, are averaged (10)
#   --min-bleu X      fail if BLEU is lower (90)
#   --help            this text

set -euo pipefail
SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SCRIPTS/../examples/common/steps.sh"
parse "$@"

AVERAGE=$((EPOCHS < 5 ? EPOCHS : 5))
OUT=$(absolute "${OUTPUT:-$REPO/runs/quickstart}") VENV=$(absolute "${VENV:-$REPO/.venv}")
[[ ! -d $OUT || -d $OUT/steps || -z $(find "$OUT" -mindepth 1 ! -name .lock) ]] ||
    die "--output $OUT: contains other files; give a new folder"
alone "$OUT"

title() {
    STAGE=$((${STAGE:-0} + 1))
    printf '\n[%3d s] %d/9 %s\n' "$SECONDS" "$STAGE" "$1"
}

title "environment"
"$SCRIPTS/setup.sh" "$VENV"
PATH=$VENV/bin:$PATH
# A model of this size gains nothing from more threads, and is slower with one per core.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

DATA=$OUT/data BINARY=$OUT/data-bin CHECKPOINTS=$OUT/checkpoints
USER_DIR=$REPO/fairseq_posenc TOY=$REPO/examples/toy
# A changed program repeats the steps that run it.
code_of() { find "$@" -name '*.py' -exec sha256sum {} + | sort | sha256sum | cut -c 1-12; }
# The output of a step goes to its log, and the command to the user.
quietly() {
    "$@" &>"$OUT/step.log" || die "$(tail -n 1 "$OUT/step.log")"
    grep '^+' "$OUT/step.log" || tail -n 1 "$OUT/step.log" >&2
}

title "corpus of $PAIRS pairs"
quietly step corpus --settings "$(code_of "$TOY")" --outputs "$DATA"/{train,valid,test}.{en,de} -- \
    fairseq-posenc script "$TOY/corpus.py" "$DATA" --train "$PAIRS" --seed "$SEED"

title "words and subwords"
# A step for each language, for which LANG stands, from the texts SPLIT$2LANG to SPLIT$3LANG.
on_texts() {
    local lang split words
    for lang in en de; do
        words=("${@:4}")
        for split in train valid test; do words+=("<$DATA/$split$2$lang" ">$DATA/$split$3$lang"); done
        quietly step "$1-$lang" -- fairseq-posenc "${words[@]/#LANG/$lang}"
    done
}
on_texts tokenize . .tok. tokenize moses --lang LANG --workers 2
quietly step learn -- fairseq-posenc learn-subwords subword-nmt --operations 2000 ">$DATA/codes" \
    "<$DATA/train.tok."{en,de}
on_texts split .tok. .bpe. apply-subwords subword-nmt --workers 2 "<$DATA/codes"

title "binary data"
quietly step binary --inputs "$DATA"/{train,valid,test}.bpe.{en,de} \
    --outputs "$BINARY"/{dict.{en,de}.txt,{train,valid,test}.en-de.{en,de}.{bin,idx}} -- \
    rm -rf "$BINARY" '&&' fairseq-preprocess --source-lang en --target-lang de \
    --trainpref "$DATA/train.bpe" --validpref "$DATA/valid.bpe" --testpref "$DATA/test.bpe" \
    --joined-dictionary --destdir "$BINARY"

title "training $ARCH"
step training --data "$BINARY" --settings "$(code_of "$USER_DIR")" --log "$OUT/train.log" \
    --outputs "$CHECKPOINTS/checkpoint_last.pt" -- \
    rm -rf "$CHECKPOINTS" '&&' fairseq-train "$BINARY" --user-dir "$USER_DIR" --arch "$ARCH" \
    --share-all-embeddings --dropout 0.1 --cpu --num-workers 0 --seed "$SEED" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 0.0025 --lr-scheduler inverse_sqrt \
    --warmup-updates 150 --max-tokens 2000 --required-batch-size-multiple 1 \
    --max-epoch "$EPOCHS" --save-dir "$CHECKPOINTS" --keep-last-epochs "$AVERAGE" \
    --log-format json --log-interval 20 2>&1 | awk -v epochs="$EPOCHS" '
        /^\+/ { print; fflush() }
        /error: |: already done/ { print >"/dev/stderr" }
        /\| valid \|/ {
            match($0, /"epoch": [0-9]+/); epoch = substr($0, RSTART + 9, RLENGTH - 9)
            match($0, /"valid_loss": "[0-9.]+/); loss = substr($0, RSTART + 15, RLENGTH - 15)
            printf "    epoch %s of %s, loss on valid %s\n", epoch, epochs, loss; fflush()
        }'

title "average of the last $AVERAGE checkpoints"
quietly step average --inputs "$CHECKPOINTS/checkpoint_last.pt" -- \
    fairseq-posenc average --inputs "$CHECKPOINTS" --num-epoch-checkpoints "$AVERAGE" \
    --checkpoint-upper-bound "$EPOCHS" --output ">$OUT/average.pt"

title "translation of the test set, beam 4"
# Without --required-batch-size-multiple 1, fairseq main and its fork drop up to 7 sentences.
quietly step translation --data "$BINARY" --log "$OUT/generate.log" --outputs "$OUT/generate-test.txt" -- \
    fairseq-generate "$BINARY" --user-dir "$USER_DIR" --cpu --path "<$OUT/average.pt" --beam 4 \
    --lenpen 0.6 --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 --results-path "$OUT"
# The order of the test set, which batching by length changed.
grep '^H-' "$OUT/generate-test.txt" | cut -c 3- | sort -n | cut -f 3 >"$DATA/output.tok.de"
quietly step detokenize -- \
    fairseq-posenc detokenize --lang de "<$DATA/output.tok.de" ">$OUT/output.de"

title "results"
run fairseq-posenc plot training --output "$OUT/training.png" --labels "$ARCH" -- "$OUT/train.log"
for line in 1 2 3 4 5; do
    printf '\n'
    for text in "source   :$DATA/test.en" "output   :$OUT/output.de" "reference:$DATA/test.de"; do
        printf '    %s %s\n' "${text%%:*}" "$(sed -n "${line}p" "${text#*:}")"
    done
done
printf '\n'
run sacrebleu "$DATA/test.de" -i "$OUT/output.de" -m bleu -f text -w 2 | tee "$OUT/bleu.txt"
BLEU=$(sed -E 's/^[^=]* = ([0-9.]+) .*/\1/' "$OUT/bleu.txt") # the first number, not a length
awk -v bleu="$BLEU" -v least="$MIN_BLEU" 'BEGIN { exit !(bleu >= least) }' ||
    die "BLEU $BLEU is below $MIN_BLEU"

title "model folder"
quietly step model --data "$BINARY" --replaces "$OUT/model" --known-by model.json --option=--output -- \
    fairseq-posenc pack "<$OUT/average.pt" "$(part "$OUT/model")" --ctranslate2 auto \
    --data "$BINARY" --tokenizer moses --subwords subword-nmt --subword-file "$DATA/codes" \
    --about "A toy grammar, $PAIRS pairs, seed $SEED." --scores "<$OUT/bleu.txt"
sed -n 6p "$DATA/test.en" | run fairseq-posenc translate --model "$OUT/model"
printf '[%3d s] curves %s, model %s: fairseq-posenc translate --model %s <text\n' \
    "$SECONDS" "$OUT/training.png" "$OUT/model" "$OUT/model"
