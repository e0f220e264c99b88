#!/usr/bin/env bash
# Translate the test documents, score them, and score the choices of a contrastive set.
#   [CONTEXT=N,...] [CHOICES=FILE DOCUMENTS=DIR] evaluate.sh DATA CHECKPOINT OUT [flags of fairseq-generate, which win]
# CONTEXT: numbers of context sentences, or whole (default: the last entry of the data's CONTEXT). Documents are
# translated with the first entry and scored in OUT/scores.txt; choices are scored with each entry, in OUT/choices-N.txt and .json.
set -euo pipefail
DATA=${1:?the data-bin of prepare.sh} CHECKPOINT=${2:?a checkpoint} OUT=${3:?the folder to write}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) CHOICES=${CHOICES:-} DOCUMENTS=${DOCUMENTS:-}
setting() { sed -n "s/^$1=//p" "$DATA/text.settings"; }
SOURCE=$(setting SOURCE) TARGET=$(setting TARGET) SIDES=$(setting SIDES) CONTEXT=${CONTEXT:-$(setting CONTEXT | sed 's/.*,//')}
mkdir -p "$OUT"

# Split text into the model's tokens; blank lines between documents stay.
split() { if [[ -e $DATA/bpe.codes ]]; then subword-nmt apply-bpe -c "$DATA/bpe.codes"; else cat; fi; }
tokens() { perl -CSD -pe 's/[^\P{C}\n]/ /g' "$2" | sacremoses -q -l "$1" normalize tokenize | split; }

tokens "$SOURCE" "$DATA/test.$SOURCE" >"$OUT/test.$SOURCE"
python "$HERE/translate.py" "$DATA" --path "$CHECKPOINT" --user-dir "$(fairseq-posenc path)" --context "${CONTEXT%%,*}" \
    --sides "$SIDES" --source-lang "$SOURCE" --target-lang "$TARGET" --beam 4 --lenpen 0.6 "${@:4}" \
    <"$OUT/test.$SOURCE" >"$OUT/hypotheses.subwords"
sed -E 's/@@( |$)//g' "$OUT/hypotheses.subwords" | sacremoses -q -l "$TARGET" detokenize >"$OUT/hypotheses.txt"
# print each document as one line; documents end at the reference's blank lines
whole() { paste "$DATA/test.$TARGET" "$1" | awk -F '\t' '$1 != "" { text = text " " $2 } $1 == "" && text { print text; text = "" } END { if (text) print text }'; }
{
    sacrebleu "$DATA/test.$TARGET" -i "$OUT/hypotheses.txt" -l "$SOURCE-$TARGET" -m bleu chrf ter -w 2 -f text
    printf 'd-BLEU '
    sacrebleu <(whole "$DATA/test.$TARGET") -l "$SOURCE-$TARGET" -m bleu -b -w 2 < <(whole "$OUT/hypotheses.txt")
} | tee "$OUT/scores.txt"
[[ -n $CHOICES ]] || exit 0

python "$HERE/contrastive.py" write "$CHOICES" "${DOCUMENTS:?the documents of CHOICES}" "$OUT"/choices.{"$SOURCE","$TARGET"}
for lang in "$SOURCE" "$TARGET"; do tokens "$lang" "$OUT/choices.$lang" >"$OUT/choices.tokens.$lang"; done
for context in ${CONTEXT//,/ }; do
    NAME=$OUT/choices-$context && rm -rf "$NAME"
    python "$HERE/context.py" --context "$context" --sides "$SIDES" --last "$OUT/choices.tokens".{"$SOURCE","$TARGET"} \
        "$NAME".{"$SOURCE","$TARGET"}
    fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --testpref "$NAME" --destdir "$NAME" \
        --srcdict "$DATA/dict.$SOURCE.txt" --tgtdict "$DATA/dict.$TARGET.txt"
    fairseq-generate "$NAME" --user-dir "$(fairseq-posenc path)" --path "$CHECKPOINT" --source-lang "$SOURCE" \
        --target-lang "$TARGET" --score-reference --max-tokens 8000 --required-batch-size-multiple 1 "${@:4}" >"$NAME.generated"
    python "$HERE/contrastive.py" score "$CHOICES" "$NAME.generated" "$NAME.json" | tee "$NAME.txt"
done
