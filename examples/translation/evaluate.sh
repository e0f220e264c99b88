#!/usr/bin/env bash
# Average the last checkpoints, translate the test set, and score the translations.
#   [SOURCE=en] [TARGET=de] [AVERAGE=5] evaluate.sh DATA SAVE_DIR [flags of fairseq-generate, which win]
# SAVE_DIR/evaluate has the translations (hypotheses.txt) and scores.txt.
set -euo pipefail
DATA=${1:?the data-bin of prepare.sh} SAVE_DIR=${2:?the folder of train.sh} OUT=$2/evaluate
SOURCE=${SOURCE:-en} TARGET=${TARGET:-de} AVERAGE=${AVERAGE:-5} HERE=$(dirname "${BASH_SOURCE[0]}")
mkdir -p "$OUT"

fairseq-posenc average --inputs "$SAVE_DIR" --num-epoch-checkpoints "$AVERAGE" --output "$OUT/average.pt"
fairseq-generate "$DATA" --user-dir "$(fairseq-posenc path)" --path "$OUT/average.pt" \
    --task translation --source-lang "$SOURCE" --target-lang "$TARGET" --beam 4 --lenpen 0.6 \
    --max-tokens 4000 --required-batch-size-multiple 1 "${@:3}" >"$OUT/generated.txt"
grep ^H- "$OUT/generated.txt" | cut -c 3- | sort -n | cut -f 3 >"$OUT/hypotheses.subwords"
[[ $(wc -l <"$OUT/hypotheses.subwords") == $(wc -l <"$DATA/test.$TARGET") ]] ||
    { echo "$OUT/generated.txt: does not have one translation for each line of $DATA/test.$TARGET" >&2; exit 1; }

if [[ -e $DATA/bpe.codes ]]; then
    sed -E 's/@@( |$)//g' "$OUT/hypotheses.subwords" >"$OUT/hypotheses.tok"
    sacremoses -q -l "$TARGET" detokenize <"$OUT/hypotheses.tok" >"$OUT/hypotheses.txt"
    TOKENISED=$(sacrebleu --force -tok none -b -w 2 "$DATA/test.tok.$TARGET" <"$OUT/hypotheses.tok")
else
    python "$HERE/../common/pieces.py" join "$DATA/sentencepiece.model" <"$OUT/hypotheses.subwords" >"$OUT/hypotheses.txt"
fi
{
    [[ -z ${TOKENISED:-} ]] || echo "tokenised BLEU $TOKENISED"
    sacrebleu "$DATA/test.$TARGET" -i "$OUT/hypotheses.txt" -l "$SOURCE-$TARGET" -m bleu chrf ter -w 2 -f text
} | tee "$OUT/scores.txt"
