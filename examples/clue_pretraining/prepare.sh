#!/usr/bin/env bash
# Turn Chinese text into binary data in OUT/data-bin, for masked language models that mask whole words.
#   [LEVEL=piece]: characters, and pieces of other scripts by OPERATIONS=8000 merges; LEVEL=word: the most frequent
#   words, and the characters of other words; LEVEL=character: characters   [SYMBOLS=20000]: maximum number of symbols
#   [LENGTHS=512]: samples of 512 symbols; LENGTHS=diff: samples of one document with up to 512 symbols
#   [WORDS=jieba]: jieba finds the words; WORDS=spaces: spaces separate them   [LOWERCASE=1] [WORKERS=N] prepare.sh TEXTS OUT
# TEXTS has train.txt, valid.txt and optionally test.txt, with one document per line. LOWERCASE= keeps capitals.
set -euo pipefail
TEXTS=${1:?a folder of texts} OUT=${2:?the folder to write} HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LEVEL=${LEVEL:-piece} OPERATIONS=${OPERATIONS:-8000} SYMBOLS=${SYMBOLS:-20000} LENGTHS=${LENGTHS:-512}
WORDS=${WORDS:-jieba} WORKERS=${WORKERS:-$(nproc)} COMMON=$HERE/../common TESTS=()
export LOWERCASE=${LOWERCASE-1} TQDM_MININTERVAL=10 # otherwise the progress of subword-nmt fills a log

die() { echo "prepare.sh: $*" >&2; exit 1; }
# create FILE COMMAND...: write the output of COMMAND to FILE, which appears once it is complete
create() { [[ -e $1 ]] || { echo "$1" >&2; "${@:2}" >"$1.part" || die "$1: was not written; run the same command again to resume"; mv "$1.part" "$1"; }; }

SPLITS=(train valid)
[[ ! -e $TEXTS/test.txt ]] || SPLITS+=(test)
for split in "${SPLITS[@]}"; do python "$COMMON/check.py" texts "$TEXTS/$split.txt"; done
marked() { python "$HERE/marked.py" "$1" "${@:3}" <"$2"; }
case $LEVEL in
    piece) FILE=bpe.codes && learn() { marked others "$OUT/words/train" | subword-nmt learn-bpe -s "$OPERATIONS"; } ;;
    word) FILE=words.txt && learn() { marked choose "$OUT/words/train" "$SYMBOLS"; } ;;
    character) FILE=words.txt && learn() { :; } ;; # an empty list of words
    *) die "LEVEL=$LEVEL: expected piece, word or character" ;;
esac
case $LENGTHS in
    512) BREAK=none FOLDER=symbols ;; # a sample may span documents
    diff) BREAK=eos FOLDER=lines ;;
    *) die "LENGTHS=$LENGTHS: expected 512 or diff" ;;
esac
[[ $WORDS == jieba || $WORDS == spaces ]] || die "WORDS=$WORDS: expected jieba or spaces"

mkdir -p "$OUT"/{words,symbols,lines}
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
SETTINGS="LEVEL=$LEVEL OPERATIONS=$OPERATIONS SYMBOLS=$SYMBOLS LENGTHS=$LENGTHS WORDS=$WORDS LOWERCASE=$LOWERCASE \
texts $(for split in "${SPLITS[@]}"; do cat "$TEXTS/$split.txt"; done | cksum)"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }

for split in "${SPLITS[@]}"; do create "$OUT/words/$split" marked words "$TEXTS/$split.txt" "$WORDS" "$WORKERS"; done
create "$OUT/$FILE" learn
fold() { python "$COMMON/fold.py" 510 <"$OUT/symbols/$1"; } # 512 symbols with <s> and </s>
for split in "${SPLITS[@]}"; do
    create "$OUT/symbols/$split" marked split "$OUT/words/$split" "$OUT/$FILE"
    [[ $LENGTHS == 512 ]] || create "$OUT/lines/$split" fold "$split"
done
[[ ${#SPLITS[@]} == 2 ]] || TESTS=(--testpref "$OUT/$FOLDER/test")
rm -rf "$OUT/data-bin.part"
fairseq-preprocess --only-source --workers "$WORKERS" --nwordssrc $((SYMBOLS + 4)) --trainpref "$OUT/$FOLDER/train" \
    --validpref "$OUT/$FOLDER/valid" "${TESTS[@]}" --destdir "$OUT/data-bin.part"
cp "$OUT/$FILE" "$OUT/data-bin.part"
echo "$BREAK" >"$OUT/data-bin.part/sample-break-mode"
mv "$OUT/data-bin.part" "$OUT/data-bin"
