#!/usr/bin/env bash
# Language models: from a published corpus to binarised data.
#
#   prepare.sh KIND SOURCE OUT [options]
#
# KIND is the kind of SOURCE:
#   wikitext    the folder of WikiText-2 or WikiText-103, word-level with <unk>:
#               wiki.{train,valid,test}.tokens or {train,valid,test}.txt
#   text8       the file text8: letters and spaces, a space becomes _
#   enwik8      the file enwik8 or any other file, each byte a symbol
#   subwords    a folder with running text such as OpenWebText2 or the Pile, {train,valid}.jsonl
#               (a document a line, {"text": "..."}) or {train,valid}.txt (blank lines between
#               documents), perhaps test: split into subwords, with </s> after every line
# Single files are split by position: 90 % train, 5 % valid, 5 % test. OUT/data-bin is
# then what train.sh and compare.sh take. Run again, it repeats no finished step.
#
#   --subwords NAME       of the kind subwords: byte-bpe, as in GPT-3 (pip install tokenizers), or
#                         sentencepiece (byte-bpe)
#   --vocabulary-size N   of the kind subwords: symbols (50000)
#   --workers N           worker processes (all cores)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/tokens.sh
. "$COMMON/tokens.sh"

KIND="" SOURCE="" OUT="" WORKERS=$(nproc) SUBWORDS="" SIZE="" TOKENIZER="" SPLITS=()
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --subwords) SUBWORDS=$(value "$@"); shift 2 ;;
        --vocabulary-size) SIZE=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" KIND SOURCE OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the kind, the source and the folder to write to; see --help"
whole_number --workers "$WORKERS"
if [[ $KIND == subwords ]]; then
    SUBWORDS=${SUBWORDS:-byte-bpe} SIZE=${SIZE:-50000}
    [[ $SUBWORDS == byte-bpe || $SUBWORDS == sentencepiece ]] ||
        die "--subwords $SUBWORDS: expected byte-bpe or sentencepiece"
    whole_number --vocabulary-size "$SIZE"
else
    for given in "${SUBWORDS:+--subwords}" "${SIZE:+--vocabulary-size}"; do
        [[ -z $given ]] || die "$given: has no effect on $KIND; it is for the kind subwords"
    done
fi
export WORKERS
need python fairseq-preprocess

SOURCE=$(absolute "$SOURCE") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
PART=$OUT/data-bin.part

# The checksums of Matt Mahoney's page, http://mattmahoney.net/dc/textdata.html
declare -A MD5=([text8]=3bea1919949baf155f99411df5fada7e [enwik8]=a1fa5ffddb56f4953e226637dabbb36a)

words() {
    local split file prefixes=()
    for split in train valid test; do
        for file in "$SOURCE/wiki.$split.tokens" "$SOURCE/$split.txt" ""; do
            [[ ! -f $file ]] || break
        done
        [[ -n $file ]] || ((!DRY_RUN)) || file=$SOURCE/$split.txt
        [[ -n $file || $split == test ]] ||
            die "$SOURCE: has neither wiki.$split.tokens nor $split.txt; give a folder of WikiText"
        [[ -n $file ]] || continue
        prefixes+=("--${split}pref" "$file")
        ((!DRY_RUN)) || continue
        python "$COMMON/text.py" "$file" || exit
        STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
    done
    MAKE=(fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$PART" --workers "$WORKERS")
}

characters() {
    local seen
    MAKE=(python "$RECIPE/characters.py" "$KIND" "$SOURCE" "$PART")
    ((!DRY_RUN)) || return 0
    [[ -f $SOURCE ]] || die "$SOURCE: no such file; give the file $KIND"
    seen=$(md5sum <"$SOURCE")
    STEP_CHAIN+="$KIND $seen"$'\n'
    [[ ${seen%% *} == "${MD5[$KIND]}" ]] ||
        log "$SOURCE: differs from the published $KIND; results are not comparable with the literature"
}

# Find the texts of SOURCE; set TEXTS to them.
running_text() {
    local split file
    for split in train valid test; do
        for file in "$SOURCE/$split.jsonl" "$SOURCE/$split.txt" ""; do
            [[ ! -f $file ]] || break
        done
        [[ -n $file ]] || ((!DRY_RUN)) || [[ $split == test ]] || file=$SOURCE/$split.jsonl
        [[ -n $file || $split == test ]] ||
            die "$SOURCE: has neither $split.jsonl nor $split.txt"
        [[ -n $file ]] || continue
        SPLITS+=("$split") TEXTS+=("$file")
        ((DRY_RUN)) || STEP_CHAIN+="$split $(sha256sum <"$file")"$'\n'
    done
}

in_subwords() {
    local number split prefixes=()
    for number in "${!SPLITS[@]}"; do
        step "documents-${SPLITS[number]}" "$OUT/documents/${SPLITS[number]}" -- \
            python "$RECIPE/running_text.py" "${TEXTS[number]}" "$OUT/documents/${SPLITS[number]}"
    done
    if [[ $SUBWORDS == byte-bpe ]]; then
        TOKENIZER=$OUT/bpe/tokenizer
        step learn-bpe "$TOKENIZER"/tokenizer{,_config}.json -- \
            python "$COMMON/byte_bpe.py" learn --vocabulary-size "$SIZE" "$TOKENIZER" \
            "$OUT/documents/train"
        by_tokenizer "$OUT/bpe"
        prefixes=(--srcdict "$OUT/bpe/dict.txt")
    else
        local model=$OUT/bpe/sentencepiece.model
        step learn-sentencepiece "$model" -- python "$COMMON/spm.py" learn \
            --vocabulary-size "$SIZE" --byte-fallback "$model" "$OUT/documents/train"
        for split in "${SPLITS[@]}"; do
            step "apply-sentencepiece-$split" "$OUT/bpe/$split" -- \
                python "$COMMON/spm.py" apply "$model" "$OUT/documents/$split" "$OUT/bpe/$split"
        done
    fi
    for split in "${SPLITS[@]}"; do
        prefixes+=("--${split}pref" "$OUT/bpe/$split")
    done
    MAKE=(fairseq-preprocess --only-source "${prefixes[@]}" --destdir "$PART" --workers "$WORKERS")
}

binarize() {
    run rm -rf "$PART"
    run "${MAKE[@]}"
    [[ $KIND != subwords ]] || keep_splitting "$PART"
    # Record what the symbols are: who uses the model needs to know.
    ((DRY_RUN)) || printf 'kind %s\n%s' "$KIND" \
        "${SUBWORDS:+$(printf 'keep-case --keep-case\nsubwords %s' "$SUBWORDS")$'\n'}" >"$PART/text"
    replace_folder "$PART" "$OUT/data-bin"
}

TEXTS=()
case $KIND in
    wikitext) words ;;
    text8 | enwik8) characters ;;
    subwords) running_text ;;
    *) die "$KIND: unknown kind; expected wikitext, text8, enwik8 or subwords" ;;
esac
hold "$OUT"
replaceable OUT "$OUT/data-bin" text "$SOURCE"
[[ $KIND != subwords ]] || in_subwords
step "binarize-$KIND" "$OUT"/data-bin/{{train,valid}.{bin,idx},dict.txt,text} -- binarize "$KIND"

log "data for train.sh: $OUT/data-bin"
