#!/usr/bin/env bash
# From scratch to a trained RoFormer on a CPU: install, make a toy corpus, train, translate, score, pack.
#
#   quickstart.sh [ARCH [OUT]]     (roformer_tiny runs/quickstart)
#
# If started again, it resumes where it ended. Variables: PAIRS, the training sentences (10000); EPOCHS (10);
# SEED (1); VENV, the environment (.venv); and MIN_BLEU, the BLEU below which the script fails (90).

set -euo pipefail
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ARCH=${1:-roformer_tiny} OUT=$(realpath -m "${2:-$REPO/runs/quickstart}") VENV=$(realpath -ms "${VENV:-$REPO/.venv}")
PAIRS=${PAIRS:-10000} EPOCHS=${EPOCHS:-10} SEED=${SEED:-1} MIN_BLEU=${MIN_BLEU:-90}
die() { printf 'quickstart.sh: error: %s\n' "$*" >&2 && exit 1; }
stage() { printf '\n[%3d s] %d/8 %s\n' "$SECONDS" $((STAGE = ${STAGE:-0} + 1)) "$1"; }

mkdir -p "$OUT"
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another quickstart is running in this folder; wait until it ends"
SETTINGS="ARCH=$ARCH PAIRS=$PAIRS EPOCHS=$EPOCHS SEED=$SEED"
[[ -f $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] ||
    die "$OUT was made with $(<"$OUT/settings"), not $SETTINGS; give another folder, as quickstart.sh $ARCH OUT"

stage "environment"
"$REPO/scripts/setup.sh" "$VENV"
PATH=$VENV/bin:$PATH
# A model of this size gains nothing from more threads, and is slower with one per core.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
# made FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete.
made() { [[ -s $1 ]] || { "${@:2}" >"$1.part" && mv "$1.part" "$1"; }; }

stage "corpus of $PAIRS pairs"
DATA=$OUT/data
[[ -d $DATA ]] || {
    rm -rf "$DATA.part"
    python "$REPO/examples/toy/corpus.py" "$DATA.part" --train "$PAIRS" --seed "$SEED" && mv "$DATA.part" "$DATA"
}

stage "words, subwords and binary data"
for split in train valid test; do
    for lang in en de; do
        made "$DATA/$split.tok.$lang" sacremoses -q -l "$lang" tokenize -a <"$DATA/$split.$lang"
    done
done
made "$DATA/codes" subword-nmt learn-bpe -s 2000 < <(cat "$DATA"/train.tok.{en,de})
for split in train valid test; do
    for lang in en de; do
        made "$DATA/$split.bpe.$lang" subword-nmt apply-bpe -c "$DATA/codes" <"$DATA/$split.tok.$lang"
    done
done
[[ -d $OUT/data-bin ]] || {
    rm -rf "$OUT/data-bin.part"
    fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --destdir "$OUT/data-bin.part" \
        --trainpref "$DATA/train.bpe" --validpref "$DATA/valid.bpe" --testpref "$DATA/test.bpe" >"$OUT/preprocess.log" 2>&1 ||
        die "$(tail -n 1 "$OUT/preprocess.log")"
    mv "$OUT/data-bin.part" "$OUT/data-bin"
}

stage "training $ARCH, $EPOCHS epochs"
fairseq-train "$OUT/data-bin" --user-dir "$REPO/fairseq_posenc" --arch "$ARCH" --share-all-embeddings --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' \
    --lr 0.0025 --lr-scheduler inverse_sqrt --warmup-updates 150 --max-tokens 2000 --required-batch-size-multiple 1 \
    --max-epoch "$EPOCHS" --keep-last-epochs 5 --save-dir "$OUT/checkpoints" --seed "$SEED" --cpu --num-workers 0 \
    --log-format json --log-interval 20 --log-file "$OUT/train.log" 2>&1 |
    tee "$OUT/train.out" | sed -unE 's/.*\| valid \|.*"epoch": ([0-9]+).*"valid_loss": "([0-9.]+)".*/    epoch \1, loss on valid \2/p' ||
    die "$(tail -n 1 "$OUT/train.out")"

stage "average of the last checkpoints, and translation of the test set, beam 4"
fairseq-posenc average --inputs "$OUT/checkpoints" --num-epoch-checkpoints $((EPOCHS < 5 ? EPOCHS : 5)) --output "$OUT/average.pt"
# Without --required-batch-size-multiple 1, fairseq drops up to 7 sentences.
made "$OUT/generated.txt" fairseq-generate "$OUT/data-bin" --user-dir "$REPO/fairseq_posenc" --path "$OUT/average.pt" --cpu \
    --beam 4 --lenpen 0.6 --remove-bpe --max-tokens 4000 --required-batch-size-multiple 1 2>"$OUT/generate.log" ||
    die "$(tail -n 1 "$OUT/generate.log")"
# Restore the order of the test set, which batching by length changed.
grep '^H-' "$OUT/generated.txt" | cut -c 3- | sort -n | cut -f 3 | sacremoses -q -l de detokenize >"$OUT/output.de"

stage "results"
fairseq-posenc plot training --output "$OUT/training.png" --labels "$ARCH" -- "$OUT/train.log"
for line in 1 2 3 4 5; do
    printf '\n    source    %s\n    output    %s\n    reference %s\n' "$(sed -n ${line}p "$DATA/test.en")" \
        "$(sed -n ${line}p "$OUT/output.de")" "$(sed -n ${line}p "$DATA/test.de")"
done
printf '\n'
sacrebleu "$DATA/test.de" -i "$OUT/output.de" -m bleu -f text -w 2 | tee "$OUT/bleu.txt"
BLEU=$(sed -E 's/^[^=]* = ([0-9.]+) .*/\1/' "$OUT/bleu.txt") # the score is the first number
awk -v bleu="$BLEU" -v least="$MIN_BLEU" 'BEGIN { exit !(bleu >= least) }' || die "BLEU $BLEU is below $MIN_BLEU"

stage "model folder"
[[ -d $OUT/model ]] || fairseq-posenc pack "$OUT/average.pt" "$OUT/model" --ctranslate2 auto --data "$OUT/data-bin" \
    --tokenizer moses --subwords subword-nmt --subword-file "$DATA/codes" \
    --about "A toy grammar, $PAIRS pairs, seed $SEED." --scores "$OUT/bleu.txt"

stage "translation with the folder: fairseq-posenc translate --model $OUT/model <TEXT"
sed -n 6p "$DATA/test.en" | fairseq-posenc translate --model "$OUT/model"
