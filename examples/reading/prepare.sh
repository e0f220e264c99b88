#!/usr/bin/env bash
# Turn the published files of a reading-comprehension TASK into data for fairseq-train in OUT/data-bin.
#   [TRAIN=FILE] [VALID=FILE] prepare.sh squad|cmrc SOURCE MODEL OUT [flags of `fairseq-posenc reading prepare`]
#   [LONGEST=128] [WORKERS=N] prepare.sh race|c3|chid|copa|qnli|cail SOURCE MODEL OUT
# SOURCE has the published files, MODEL is the folder that `fairseq-posenc pack` wrote for the pre-trained
# model. LONGEST: maximum symbols of a question with its choice; longer ones lose their beginning.
set -euo pipefail
TASK=${1:?a task} SOURCE=${2:?the folder of its files} MODEL=${3:?a model folder} OUT=${4:?the folder to write}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) LONGEST=${LONGEST:-128} WORKERS=${WORKERS:-$(nproc)}
case $TASK in
    squad) FILES="${TRAIN:-train-v2.0.json} ${VALID:-dev-v2.0.json}" ;;
    cmrc) FILES="${TRAIN:-cmrc2018_train.json} ${VALID:-cmrc2018_dev.json}" ;;
    *) FILES="LONGEST=$LONGEST" ;;
esac

die() { echo "prepare.sh: $*" >&2; exit 1; }
mkdir -p "$OUT"
exec 9>"$OUT/.lock"
flock -n 9 || die "$OUT: another prepare.sh is running in this folder; wait until it ends"
SETTINGS="$TASK $SOURCE $FILES $MODEL $(cksum <"$MODEL/dict.txt") ${*:5}"
[[ -e $OUT/settings ]] || echo "$SETTINGS" >"$OUT/settings"
[[ $(<"$OUT/settings") == "$SETTINGS" ]] || die "$OUT was made with $(<"$OUT/settings"), not with $SETTINGS; choose another folder"
[[ ! -e $OUT/data-bin ]] || { echo "$OUT/data-bin exists already"; exit; }
rm -rf "$OUT/data-bin.part"

if [[ $TASK == squad || $TASK == cmrc ]]; then
    fairseq-posenc reading prepare "$OUT/data-bin.part" --dict "$MODEL/dict.txt" --text-of "$MODEL" --rules "$TASK" \
        --train "$SOURCE/${FILES% *}" --valid "$SOURCE/${FILES#* }" "${@:5}"
else
    rm -rf "$OUT/text" "$OUT/symbols"
    python "$HERE/choices.py" "$TASK" "$SOURCE" "$OUT/text"
    mkdir -p "$OUT/data-bin.part/label"
    for column in "$OUT"/text/input*; do
        column=${column##*/} longest=()
        [[ $column == input0 || $TASK == cail ]] || longest=(--longest "$LONGEST")
        python "$HERE/../common/symbols.py" "${longest[@]}" "$MODEL" "$OUT/symbols/$column" "$OUT/text/$column"/*
        valid=("$OUT/symbols/$column"/valid*)
        python "$HERE/../common/check.py" vocabulary "$MODEL/dict.txt" "$OUT/symbols/$column"/*
        fairseq-preprocess --only-source --srcdict "$MODEL/dict.txt" --workers "$WORKERS" \
            --trainpref "$OUT/symbols/$column/train" --validpref "$(IFS=, && echo "${valid[*]}")" \
            --destdir "$OUT/data-bin.part/$column"
    done
    for labels in "$OUT"/text/label/*; do cp "$labels" "$OUT/data-bin.part/label/${labels##*/}.label"; done
fi
mv "$OUT/data-bin.part" "$OUT/data-bin"
