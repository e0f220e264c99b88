#!/usr/bin/env bash
# Fetch and check published parallel documents; write one sentence per line, a blank line after each document.
#   [SOURCE=en] [TARGET=de] [RAW=FOLDER] [HELD_OUT=400] [ARCHIVES=FILE] corpus.sh CORPUS OUT
# CORPUS news-commentary: version 14; half of its last HELD_OUT documents become valid, the other half test.
# CORPUS ted: IWSLT 2017 with dev2010 and tst2010; RAW has the archive, which you download in a browser.
# CORPUS contrapro: the choices of ContraPro; its own setup_opensubs.sh makes the documents.
set -euo pipefail
CORPUS=${1:?news-commentary, ted or contrapro} OUT=${2:?the folder to write} SOURCE=${SOURCE:-en} TARGET=${TARGET:-de}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) HELD_OUT=${HELD_OUT:-400}
ARCHIVES=${ARCHIVES:-$HERE/archives.txt} PART=${OUT%/}.part RAW=${RAW:-${OUT%/}.part/raw}

die() { echo "corpus.sh: $*" >&2; exit 1; }
[[ $HELD_OUT =~ ^[1-9][0-9]*$ && $((HELD_OUT % 2)) == 0 ]] || die "HELD_OUT=$HELD_OUT: give an even number of documents"
PAIR=$(printf '%s\n' "$SOURCE" "$TARGET" | LC_ALL=C sort | paste -sd-)
ENTRY=$(awk -v corpus="$CORPUS" -v pair="$PAIR" '$1 == corpus && ($2 == pair || $2 == "any")' "$ARCHIVES")
[[ -n $ENTRY ]] || die "$CORPUS has no $SOURCE and $TARGET; see the pairs in $ARCHIVES"
[[ ! -e $OUT ]] || { echo "$OUT exists already"; exit; }
read -r _ _ SUM DIGEST NAME URL <<<"$ENTRY"

mkdir -p "$PART" "$RAW"
exec 9>"$PART/.lock"
flock -n 9 || die "$PART: another corpus.sh is running in this folder; wait until it ends"
if [[ ! -e $RAW/$NAME ]]; then
    [[ $URL != - ]] || die "$RAW/$NAME: no such file; download it in a browser (wit3.fbk.eu), and give its folder as RAW"
    curl --fail --location --retry 5 --continue-at - --output "$RAW/$NAME.part" "$URL$NAME"
    mv "$RAW/$NAME.part" "$RAW/$NAME"
fi
digest() { if [[ $SUM == git ]]; then { printf 'blob %s\0' "$(wc -c <"$1")"; cat "$1"; } | sha1sum; else "$SUM" <"$1"; fi; }
[[ $(digest "$RAW/$NAME") == "$DIGEST "* ]] ||
    die "$RAW/$NAME: its digest is not the one in $ARCHIVES; remove the file, or correct the list"

case $CORPUS in
    news-commentary)
        python "$HERE/parallel.py" tsv "$RAW/$NAME" "$PART/all.${PAIR%-*}" "$PART/all.${PAIR#*-}"
        COUNT=$(awk -v RS= 'END { print NR }' "$PART/all.$SOURCE")
        ((COUNT > HELD_OUT)) || die "$NAME: has $COUNT documents; HELD_OUT=$HELD_OUT must be smaller"
        for lang in "$SOURCE" "$TARGET"; do
            awk -v RS= -v ORS='\n\n' -v to="$PART" -v lang="$lang" -v left=$((COUNT - HELD_OUT)) -v half=$((HELD_OUT / 2)) '
                { print > (to "/" (NR <= left ? "train" : NR <= left + half ? "valid" : "test") "." lang) }' "$PART/all.$lang"
            rm "$PART/all.$lang"
        done ;;
    ted)
        INNER=DeEnItNlRo-DeEnItNlRo
        tar -xzOf "$RAW/$NAME" "2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/$INNER.tgz" | tar -xzf - -C "$PART"
        talks() { python "$HERE/parallel.py" tagged "$PART/$INNER/$2.$SOURCE-$TARGET".{"$SOURCE","$TARGET"}"$3" "$PART/$1".{"$SOURCE","$TARGET"}; }
        talks train train.tags ''
        talks valid IWSLT17.TED.dev2010 .xml
        talks test IWSLT17.TED.tst2010 .xml
        rm -r "${PART:?}/$INNER" ;;
    contrapro) [[ $RAW/$NAME -ef $PART/$NAME ]] || cp "$RAW/$NAME" "$PART/$NAME" ;;
esac
mv "$PART" "$OUT"
