#!/usr/bin/env bash
# Chinese masked language models: raw text to binarised data with word boundaries.
#
#   prepare.sh TEXT_DIR OUT [options]
#
# TEXT_DIR holds train.txt, valid.txt and perhaps test.txt, one document a line.
# OUT/data-bin is then what train.sh takes, and what examples/clue/prepare.sh needs to
# prepare its texts alike. If interrupted, run it again to resume; a changed
# option repeats only what depends on it.
#
#   --blank-lines         blank lines separate the documents
#   --lengths WHICH       512: samples of 512 tokens, documents concatenated
#                         diff: a sample is a document, or a part of it, of up to 512 (512)
#   --segmented           words are already separated by spaces (default: segment
#                         with jieba)
#   --keep-case           do not lower-case (default: lower case)
#   --symbols N           maximum size of the dictionary (20000)
#   --level LEVEL         piece: characters, and pieces of other scripts; word: the most frequent
#                         words, and characters for the others; character (piece)
#   --bpe-operations N    with --level piece, merges for letters and digits that are not Chinese 
#                         (8000)
#   --tokenizer FOLDER    instead of the five above: split the texts as this tokenizer of
#                         transformers does; words are what it marks with ##
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

TEXT="" OUT="" BLANK_LINES="" LENGTHS=512 SEGMENTED="" KEEP_CASE=""
TOKENIZER="" SYMBOLS=20000 OPERATIONS=8000 LEVEL=piece SUBWORDS="" WORKERS=$(nproc)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --blank-lines) BLANK_LINES=$1; shift ;;
        --segmented) SEGMENTED=$1; shift ;;
        --keep-case) KEEP_CASE=$1; shift ;;
        --lengths) LENGTHS=$(value "$@"); shift 2 ;;
        --symbols) SYMBOLS=$(value "$@"); shift 2 ;;
        --level) LEVEL=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" TEXT OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder of the texts and the folder to write to; see --help"
[[ $LENGTHS == 512 || $LENGTHS == diff ]] || die "--lengths $LENGTHS: expected 512 or diff"
case $LEVEL in
    piece) ;;
    word | character)
        [[ -z $TOKENIZER ]] || die "--level $LEVEL: has no effect with --tokenizer; give one of them"
        SUBWORDS=marked-words ;;
    *) die "--level $LEVEL: expected piece, word or character" ;;
esac
whole_number --symbols "$SYMBOLS"
whole_number --bpe-operations "$OPERATIONS"
whole_number --workers "$WORKERS"
export WORKERS
check_tokenizer
need python fairseq-preprocess

TEXT=$(absolute "$TEXT") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
SPLITS=(train valid)
[[ ! -f $TEXT/test.txt ]] || SPLITS+=(test)
for split in "${SPLITS[@]}"; do
    ((DRY_RUN)) || [[ -f $TEXT/$split.txt ]] || die "$TEXT/$split.txt: no such file"
    ((DRY_RUN)) || STEP_CHAIN+="$split $(sha256sum <"$TEXT/$split.txt")"$'\n'
done
hold "$OUT"
replaceable OUT "$OUT/data-bin" text "$TEXT" ${TOKENIZER:+"$TOKENIZER"}

for split in "${SPLITS[@]}"; do
    step "documents-$split" "$OUT/documents/$split" -- python "$RECIPE/pieces.py" documents \
        ${BLANK_LINES:+"$BLANK_LINES"} "$TEXT/$split.txt" "$OUT/documents/$split"
done
by_words() {
    local split
    for split in "${SPLITS[@]}"; do
        step "segment-$split" "$OUT/words/$split" -- \
            python "$RECIPE/pieces.py" segment ${SEGMENTED:+"$SEGMENTED"} \
            ${KEEP_CASE:+"$KEEP_CASE"} "$OUT/documents/$split" "$OUT/words/$split"
    done
    if [[ -n $SUBWORDS ]]; then
        in_words
        return
    fi
    step latin-words "$OUT/bpe/latin" -- \
        python "$RECIPE/pieces.py" latin "$OUT/words/train" "$OUT/bpe/latin"
    step learn-bpe "$OUT/bpe/codes" -- \
        python "$COMMON/bpe.py" learn --operations "$OPERATIONS" "$OUT/bpe/codes" \
        "$OUT/bpe/latin"
    for split in "${SPLITS[@]}"; do
        step "split-$split" "$OUT/pieces/$split" -- python "$RECIPE/pieces.py" split "$OUT/bpe/codes" \
            "$OUT/words/$split" "$OUT/pieces/$split"
    done
}
in_words() {
    local split
    step learn-words "$OUT/bpe/words.txt" -- python "$COMMON/words.py" learn --size "$SYMBOLS" \
        --level "$LEVEL" "$OUT/bpe/words.txt" "$OUT/words/train"
    for split in "${SPLITS[@]}"; do
        step "split-$split" "$OUT/pieces/$split" -- python "$COMMON/words.py" apply \
            "$OUT/bpe/words.txt" "$OUT/words/$split" "$OUT/pieces/$split"
    done
}
if [[ -n $TOKENIZER ]]; then by_tokenizer "$OUT/pieces"; else by_words; fi
# With <s> and </s> that makes 512. Samples of fixed length may span lines.
LINES=pieces
if [[ $LENGTHS == diff ]]; then
    LINES=lines
    for split in "${SPLITS[@]}"; do
        step "fold-$split" "$OUT/lines/$split" -- \
            python "$RECIPE/../bert_pretraining/fold.py" --max-tokens 510 \
            "$OUT/pieces/$split" "$OUT/lines/$split"
    done
fi

binarize() {
    local part=$OUT/data-bin.part split prefixes=() special=4 segmenter=jieba
    [[ -z $SEGMENTED ]] || segmenter=spaces
    for split in "${SPLITS[@]}"; do
        prefixes+=("--${split}pref" "$OUT/$LINES/$split")
    done
    run rm -rf "$part"
    if [[ -n $TOKENIZER ]]; then
        segmenter=tokenizer
        prefixes+=(--srcdict "$OUT/bpe/dict.txt")
    else
        prefixes+=(--nwordssrc $((SYMBOLS + special)))
    fi
    run fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$part" --workers "$WORKERS"
    # Record how these texts were prepared: training and fine-tuning need to know.
    keep_splitting "$part"
    ((DRY_RUN)) || printf '%s %s\n' lengths "$LENGTHS" segmenter "$segmenter" \
        keep-case "$KEEP_CASE" ${SUBWORDS:+subwords "$SUBWORDS" level "$LEVEL"} >"$part/text"
    replace_folder "$part" "$OUT/data-bin"
}
step binarize "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,"$(splitting_kept)",text} -- \
    binarize "$LENGTHS" "$SYMBOLS"

log "data for train.sh: $OUT/data-bin"
