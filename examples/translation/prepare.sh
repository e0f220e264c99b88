#!/usr/bin/env bash
# Turn a folder of parallel text, by default Multi30k English-German, into binary data in OUT/data-bin.
#   [SOURCE=en] [TARGET=de] [TRAIN=train] [VALID=val] [TEST=test_2016_flickr] prepare.sh TEXTS OUT
#   [SUBWORDS=subword-nmt] [SIZE=6000]: merges of Moses' tokens; SUBWORDS=sentencepiece: pieces of the raw text
#   [RATIO=9]: in training pairs, the maximum ratio of the two sides' lengths   [WORKERS=N]
# TEXTS has $TRAIN.$SOURCE and so on; if the folder TEXTS is missing, Multi30k is downloaded to it.
set -euo pipefail
TEXTS=${1:?a folder of texts} OUT=${2:?the folder to write} HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SOURCE=${SOURCE:-en} TARGET=${TARGET:-de} TRAIN=${TRAIN:-train} VALID=${VALID:-val} TEST=${TEST:-test_2016_flickr}
SUBWORDS=${SUBWORDS:-subword-nmt} SIZE=${SIZE:-6000} RATIO=${RATIO:-9} WORKERS=${WORKERS:-$(nproc)}
COMMON=$HERE/../common MULTI30K=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw

export TQDM_MININTERVAL=10 # otherwise the progress of subword-nmt fills a log
die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }

mkdir -p "$OUT"/{tokens,subwords,clean}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
if [[ ! -e $TEXTS ]]; then
    mkdir -p "$TEXTS.part"
    for text in {train,val,test_2016_flickr}.{en,de}; do
        curl --fail --location --retry 5 "$MULTI30K/$text.gz" | gunzip >"$TEXTS.part/$text"
    done
    (cd "$TEXTS.part" && sha256sum --check --quiet "$HERE/multi30k.sha256") ||
        die "$TEXTS.part: does not match multi30k.sha256; to use it anyway, rename it to $TEXTS"
    mv "$TEXTS.part" "$TEXTS"
fi
for split in "$TRAIN" "$VALID" "$TEST"; do
    python "$COMMON/check.py" pairs "$TEXTS/$split.$SOURCE" "$TEXTS/$split.$TARGET"
done
SETTINGS="$SOURCE-$TARGET SUBWORDS=$SUBWORDS SIZE=$SIZE RATIO=$RATIO texts \
$(cat "$TEXTS"/{"$TRAIN","$VALID","$TEST"}.{"$SOURCE","$TARGET"} | cksum)"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }
rm -rf "$OUT/data-bin.part" && mkdir "$OUT/data-bin.part"

case $SUBWORDS in
    subword-nmt) # replaces control characters by spaces, and tokenises by Moses
        tokenize() { perl -CSD -pe 's/[^\P{C}\n]/ /g' "$2" | sacremoses -q -l "$1" -j "$WORKERS" normalize tokenize; }
        learn() { cat "$OUT/tokens/$TRAIN".{"$SOURCE","$TARGET"} | subword-nmt learn-bpe -s "$SIZE"; }
        for split in "$TRAIN" "$VALID" "$TEST"; do
            for lang in "$SOURCE" "$TARGET"; do
                create "$OUT/tokens/$split.$lang" tokenize "$lang" "$TEXTS/$split.$lang"
            done
        done
        create "$OUT/bpe.codes" learn
        apply() { subword-nmt apply-bpe -c "$OUT/bpe.codes" -i "$OUT/tokens/$1"; }
        cp "$OUT/bpe.codes" "$OUT/data-bin.part"
        cp "$OUT/tokens/$TEST.$TARGET" "$OUT/data-bin.part/test.tok.$TARGET" ;;
    sentencepiece)
        learn() { python "$COMMON/pieces.py" learn unigram /dev/stdout "$SIZE" "$TEXTS/$TRAIN".{"$SOURCE","$TARGET"}; }
        create "$OUT/sentencepiece.model" learn
        apply() { python "$COMMON/pieces.py" split "$OUT/sentencepiece.model" <"$TEXTS/$1"; }
        cp "$OUT/sentencepiece.model" "$OUT/data-bin.part" ;;
    *) die "SUBWORDS=$SUBWORDS: expected subword-nmt or sentencepiece" ;;
esac
for text in {"$TRAIN","$VALID","$TEST"}.{"$SOURCE","$TARGET"}; do create "$OUT/subwords/$text" apply "$text"; done

# Keep training pairs with 1 to 250 symbols per side, neither side over RATIO times as long as the other.
clean() { paste "$OUT/subwords/$TRAIN".{"$SOURCE","$TARGET"} | awk -F '\t' -v side="$1" -v ratio="$RATIO" '
    {a = split($1, _, " "); b = split($2, _, " ")} a && b && a <= 250 && b <= 250 && a <= ratio*b && b <= ratio*a {print $side}'; }
create "$OUT/clean/train.$SOURCE" clean 1
create "$OUT/clean/train.$TARGET" clean 2
python "$COMMON/check.py" lengths 1022 "$OUT/subwords"/{"$VALID","$TEST"}.{"$SOURCE","$TARGET"}

fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --joined-dictionary --workers "$WORKERS" \
    --trainpref "$OUT/clean/train" --validpref "$OUT/subwords/$VALID" --testpref "$OUT/subwords/$TEST" --destdir "$OUT/data-bin.part"
for lang in "$SOURCE" "$TARGET"; do cp "$TEXTS/$TEST.$lang" "$OUT/data-bin.part/test.$lang"; done
mv "$OUT/data-bin.part" "$OUT/data-bin"
