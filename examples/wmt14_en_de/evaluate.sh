#!/usr/bin/env bash
# Average the last checkpoints, translate newstest2014, and score it in three ways.
#   [AVERAGE=5] evaluate.sh DATA SAVE_DIR [flags of fairseq-generate, which win]
# SAVE_DIR/evaluate has the translations (hypotheses.txt) and scores.txt.
set -euo pipefail
DATA=${1:?the data-bin of prepare.sh} SAVE_DIR=${2:?the folder of train.sh} OUT=$2/evaluate AVERAGE=${AVERAGE:-5}
mkdir -p "$OUT"

fairseq-posenc average --inputs "$SAVE_DIR" --num-update-checkpoints "$AVERAGE" --output "$OUT/average.pt"
fairseq-generate "$DATA" --user-dir "$(fairseq-posenc path)" --path "$OUT/average.pt" \
    --task translation --source-lang en --target-lang de --beam 4 --lenpen 0.6 --remove-bpe \
    --max-tokens 8000 --required-batch-size-multiple 1 "${@:3}" >"$OUT/generated.txt"
grep ^H- "$OUT/generated.txt" | cut -c 3- | sort -n | cut -f 3 >"$OUT/hypotheses.tok"
[[ $(wc -l <"$OUT/hypotheses.tok") == $(wc -l <"$DATA/test.de") ]] ||
    { echo "$OUT/generated.txt: does not have one translation for each line of $DATA/test.de" >&2; exit 1; }
sacremoses -q -l de detokenize <"$OUT/hypotheses.tok" >"$OUT/hypotheses.txt"

# The first score takes rich @-@ text as one word (rich-text), the second as three, as tensor2tensor does.
whole() { perl -pe 's/ \@-\@ /-/g' "$1"; }
parted() { whole "$1" | perl -CSD -pe 's/(\S)-(\S)/$1 ##AT##-##AT## $2/g'; }
bleu() { sacrebleu --force -tok none -b -w 2 <("$1" "$DATA/test.tok.de") < <("$1" "$OUT/hypotheses.tok"); }
TOKENISED=$(bleu whole) COMPOUND_SPLIT=$(bleu parted)
{
    printf 'tokenised BLEU %s\ncompound-split BLEU %s\n' "$TOKENISED" "$COMPOUND_SPLIT"
    sacrebleu "$DATA/test.de" -i "$OUT/hypotheses.txt" -m bleu chrf ter -w 2 -f text
} | tee "$OUT/scores.txt"
