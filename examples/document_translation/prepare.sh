#!/usr/bin/env bash
# Turn parallel documents (one sentence per line, a blank line after each document) into binary data in OUT/data-bin.
#   [SOURCE=en] [TARGET=de] [CONTEXT=0,3] [SIDES=both] [LONGEST=1022] [SIZE=0] prepare.sh TEXTS OUT
# CONTEXT: the number of earlier sentences in a sample, or whole documents; a list makes samples of each kind.
# SIDES: which sides have context: both, source or target.   LONGEST: maximum tokens of a sample per side.
# SIZE: how many merges of subword-nmt to learn; with 0, Moses' tokens stay whole.
set -euo pipefail
TEXTS=${1:?a folder with train, valid and test} OUT=${2:?the folder to write} SOURCE=${SOURCE:-en} TARGET=${TARGET:-de}
CONTEXT=${CONTEXT:-0,3} SIDES=${SIDES:-both} LONGEST=${LONGEST:-1022} SIZE=${SIZE:-0}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }

mkdir -p "$OUT"/{tokens,subwords,context}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
for split in train valid test; do
    python "$HERE/../common/check.py" pairs "$TEXTS/$split.$SOURCE" "$TEXTS/$split.$TARGET"
done
SETTINGS="SOURCE=$SOURCE
TARGET=$TARGET
CONTEXT=$CONTEXT
SIDES=$SIDES
LONGEST=$LONGEST SIZE=$SIZE texts $(cat "$TEXTS"/{train,valid,test}.{"$SOURCE","$TARGET"} | cksum)"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }
rm -rf "$OUT/data-bin.part" && mkdir "$OUT/data-bin.part"

tokenize() { perl -CSD -pe 's/[^\P{C}\n]/ /g' "$2" | sacremoses -q -l "$1" normalize tokenize; }
for text in {train,valid,test}.{"$SOURCE","$TARGET"}; do
    create "$OUT/tokens/$text" tokenize "${text#*.}" "$TEXTS/$text"
done
TOKENS=$OUT/tokens
if [[ $SIZE != 0 ]]; then
    learn() { cat "$OUT/tokens/train".{"$SOURCE","$TARGET"} | subword-nmt learn-bpe -s "$SIZE"; }
    create "$OUT/bpe.codes" learn
    for text in {train,valid,test}.{"$SOURCE","$TARGET"}; do
        create "$OUT/subwords/$text" subword-nmt apply-bpe -c "$OUT/bpe.codes" -i "$OUT/tokens/$text"
    done
    TOKENS=$OUT/subwords
    cp "$OUT/bpe.codes" "$OUT/data-bin.part"
fi
for split in train valid test; do
    python "$HERE/context.py" --context "$CONTEXT" --sides "$SIDES" --longest "$LONGEST" \
        "$TOKENS/$split".{"$SOURCE","$TARGET"} "$OUT/context/$split".{"$SOURCE","$TARGET"}
done

fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary \
    --trainpref "$OUT/context/train" --validpref "$OUT/context/valid" --testpref "$OUT/context/test" --destdir "$OUT/data-bin.part"
for lang in "$SOURCE" "$TARGET"; do cp "$TEXTS/test.$lang" "$OUT/data-bin.part/test.$lang"; done
cp "$OUT/settings" "$OUT/data-bin.part/text.settings"
mv "$OUT/data-bin.part" "$OUT/data-bin"
