#!/usr/bin/env bash
# Translation: from a folder of parallel text to binary data, for any pair of languages.
#
#   prepare.sh TEXTS OUT --source-lang LANG --target-lang LANG [options]
#
# TEXTS holds {train,valid,test}.LANG for both languages, plain or compressed (.gz, .xz, .bz2), one
# sentence a line; test may be missing. OUT/data-bin is then what train.sh and evaluate.sh take. If
# interrupted, run it again to resume; a changed option repeats only the steps that depend on it.
#
#   --source-lang LANG    ending of the source texts, also the language for Moses
#   --target-lang LANG    the same of the target
#   --train NAME          name of the training texts (train)
#   --valid NAME          name of the validation texts (valid)
#   --test NAME           name of the test texts (test)
#   --tokenizer moses|none  none leaves the text as it is (default: none with SentencePiece, else
#                         moses)
#   --dash-splits         Moses splits rich-text as rich @-@ text
#   --subwords sentencepiece|subword-nmt|none  what splits words (sentencepiece)
#   --sentencepiece-model unigram|bpe  how SentencePiece learns (default: unigram)
#   --byte-fallback       SentencePiece writes unknown characters as bytes
#   --character-coverage X  part of the characters that get pieces in SentencePiece (default: 0.9999)
#   --vocabulary joint|separate  one set of subwords and one dictionary for both languages, or one
#                         for each (joint)
#   --vocabulary-size N   symbols in each set: pieces of SentencePiece; characters and merges of
#                         subword-nmt; with --subwords none, the most frequent words (default: 8000
#                         or, without subwords, all)
#   --bpe-operations N    merges of subword-nmt, instead
#   --learn-from N        lines that SentencePiece learns from, or different words that subword-nmt
#                         learns from (1000000)
#   --max-length N        drop training pairs with more tokens on a side (250)
#   --ratio P             drop training pairs with a larger ratio of lengths (1.5)
#   --no-cleaning         drop no training pair
#   --longest N           refuse longer sentences in valid and test, in tokens (1022)
#   --workers N           worker processes (default: all cores)
#   --settings            print how the texts would be prepared, and end
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/steps.sh
. "$RECIPE/../common/steps.sh"
# shellcheck source=../common/translation.sh
. "$COMMON/translation.sh"
parse "$@"

# Error if flag $2 has a value, $3, but subwords other than $1 are wanted.
only_with() {
    [[ $SUBWORDS == "$1" || -z $3 ]] || die "$2: has no effect with --subwords $SUBWORDS"
}

SOURCE=$SOURCE_LANG TARGET=$TARGET_LANG
[[ $SOURCE != "$TARGET" ]] || die "--target-lang $TARGET: is the source language, too"
((DASH_SPLITS)) && DASH_SPLITS=--dash-splits || DASH_SPLITS=""
((BYTE_FALLBACK)) && FALLBACK=--byte-fallback || FALLBACK=""
only_with sentencepiece --sentencepiece-model "$SENTENCEPIECE_MODEL"
only_with sentencepiece --byte-fallback "$FALLBACK"
only_with sentencepiece --character-coverage "$CHARACTER_COVERAGE"
only_with subword-nmt --bpe-operations "$BPE_OPERATIONS"
[[ -z $VOCABULARY_SIZE || -z $BPE_OPERATIONS ]] ||
    die "--bpe-operations $BPE_OPERATIONS: give it or --vocabulary-size"
[[ -n $TOKENIZER ]] || TOKENIZER=$([[ $SUBWORDS == sentencepiece ]] && echo none || echo moses)
[[ $TOKENIZER == moses || -z $DASH_SPLITS ]] || die "--dash-splits: has no effect without Moses"
SUBWORD_FILE=sentencepiece.model
[[ $SUBWORDS != subword-nmt ]] || SUBWORD_FILE=bpe.codes
if [[ $SUBWORDS == none ]]; then
    SUBWORD_FILE=""
elif [[ $VOCABULARY == separate ]]; then
    TARGET_SUBWORD_FILE=$TARGET.$SUBWORD_FILE SUBWORD_FILE=$SOURCE.$SUBWORD_FILE
fi
if ((SETTINGS)); then
    text_settings
    exit 0
fi

export WORKERS=${WORKERS:-$(nproc)}
TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT") LANGS=("$SOURCE" "$TARGET")
((DRY_RUN)) || [[ -d $TEXTS ]] || die "$TEXTS: no such folder"

# The files: TEXT[SPLIT.LANGUAGE] is what the next step reads.
declare -A NAMES=([train]=$TRAIN [valid]=$VALID [test]=$TEST) TEXT=() TOKENS=() MODEL=()
find_text() {
    local file
    for file in "$1"{,.gz,.xz,.bz2}; do
        [[ ! -f $file ]] || { printf '%s' "$file"; return; }
    done
    ((!DRY_RUN)) || printf '%s' "$1"
}
HELD_OUT=(valid)
[[ $TEST == test && -z $(find_text "$TEXTS/test.$SOURCE")$(find_text "$TEXTS/test.$TARGET") ]] ||
    HELD_OUT+=(test)
for split in train "${HELD_OUT[@]}"; do
    for lang in "${LANGS[@]}"; do
        TEXT[$split.$lang]=$(find_text "$TEXTS/${NAMES[$split]}.$lang")
        [[ -n ${TEXT[$split.$lang]} ]] ||
            die "$TEXTS/${NAMES[$split]}.$lang: no such file, nor .gz, .xz or .bz2"
    done
done
alone "$OUT"
((DRY_RUN)) || step binarize --check --inputs "$TEXTS" --replaces "$OUT/data-bin" \
    --known-by text.settings --option OUT

# What fairseq-preprocess reads is plain, the training text before that is compressed.
step check-train --inputs "${TEXT[train.$SOURCE]}" "${TEXT[train.$TARGET]}" -- \
    fairseq-posenc check-pairs "${TEXT[train.$SOURCE]}" "${TEXT[train.$TARGET]}"
for split in "${HELD_OUT[@]}"; do
    copies=("$OUT/held-out/$split".{"$SOURCE","$TARGET"})
    step "check-$split" --inputs "${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}" \
        --outputs "${copies[@]}" -- fairseq-posenc check-pairs \
        "${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}" "${copies[@]}"
    TEXT[$split.$SOURCE]=${copies[0]} TEXT[$split.$TARGET]=${copies[1]}
done

# Step $1 on all texts of language $3, with outputs in folder $2, by the command that follows.
on_texts() {
    local name=$1 folder=$2 lang=$3 split files=() inputs=() outputs=() file
    for split in train "${HELD_OUT[@]}"; do
        file=$folder/$split.$lang
        [[ $split != train ]] || file+=.gz
        files+=("${TEXT[$split.$lang]}" "$file") inputs+=("${TEXT[$split.$lang]}") outputs+=("$file")
        TEXT[$split.$lang]=$file
    done
    [[ -z ${MODEL[$lang]:-} ]] || inputs+=("${MODEL[$lang]}")
    step "$name-$lang" --inputs "${inputs[@]}" --outputs "${outputs[@]}" -- "${@:4}" "${files[@]}"
}

if [[ $TOKENIZER == moses ]]; then
    for lang in "${LANGS[@]}"; do
        on_texts tokenize "$OUT/tokens" "$lang" \
            fairseq-posenc tokenize moses --lang "$lang" ${DASH_SPLITS:+"$DASH_SPLITS"}
    done
fi
for split in "${HELD_OUT[@]}"; do TOKENS[$split]=${TEXT[$split.$TARGET]}; done

# Learn subwords from the training texts of the languages $2... and write them to $1.
learn() {
    local file=$1 lang texts=() how=(--learn-from "$LEARN_FROM")
    for lang in "${@:2}"; do texts+=("${TEXT[train.$lang]}"); done
    if [[ -n $BPE_OPERATIONS ]]; then how+=(--operations "$BPE_OPERATIONS"); else
        how+=(--vocabulary-size "${VOCABULARY_SIZE:-8000}")
    fi
    how+=(${SENTENCEPIECE_MODEL:+--type "$SENTENCEPIECE_MODEL"} ${FALLBACK:+"$FALLBACK"}
        ${CHARACTER_COVERAGE:+--character-coverage "$CHARACTER_COVERAGE"})
    step "learn-${file##*/}" --inputs "${texts[@]}" --outputs "$file" --watch "$OUT/subwords" -- \
        fairseq-posenc learn-subwords "$SUBWORDS" "${how[@]}" "$file" "${texts[@]}"
}

if [[ $SUBWORDS != none ]]; then
    FILES=([0]="$OUT/subwords/$SUBWORD_FILE" [1]="$OUT/subwords/${TARGET_SUBWORD_FILE:-$SUBWORD_FILE}")
    if [[ $VOCABULARY == joint ]]; then learn "${FILES[0]}" "${LANGS[@]}"; else
        for index in 0 1; do learn "${FILES[index]}" "${LANGS[index]}"; done
    fi
    for index in 0 1; do
        MODEL[${LANGS[index]}]=${FILES[index]}
        on_texts split "$OUT/subwords" "${LANGS[index]}" \
            fairseq-posenc apply-subwords "$SUBWORDS" "${FILES[index]}"
    done
fi
for split in "${HELD_OUT[@]}"; do
    step "lengths-$split" --inputs "${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}" -- \
        fairseq-posenc check-pairs --longest "$LONGEST" "${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}"
done
CLEAN=(check-pairs)
((NO_CLEANING)) || CLEAN=(clean --max-length "$MAX_LENGTH" --ratio "$RATIO")
CLEANED=("$OUT/clean/train".{"$SOURCE","$TARGET"})
step clean --inputs "${TEXT[train.$SOURCE]}" "${TEXT[train.$TARGET]}" --outputs "${CLEANED[@]}" -- \
    fairseq-posenc "${CLEAN[@]}" "${TEXT[train.$SOURCE]}" "${TEXT[train.$TARGET]}" "${CLEANED[@]}"

# What evaluate.sh needs is stored with the data.
PART=$(part "$OUT/data-bin") FLAGS=() KEPT=("$OUT/text.settings") COPIES=() PAIR=$SOURCE-$TARGET
MADE=("$OUT/data-bin"/{dict.{"$SOURCE","$TARGET"}.txt,text.settings})
for split in train "${HELD_OUT[@]}"; do
    MADE+=("$OUT/data-bin/$split.$PAIR".{"$SOURCE","$TARGET"}.{bin,idx})
done
((DRY_RUN)) || { text_settings >"$OUT/text.settings.part" && mv "$OUT/text.settings"{.part,}; }
for split in "${HELD_OUT[@]}"; do
    FLAGS+=("--${split}pref" "${TEXT[$split.$SOURCE]%.*}")
    for lang in "${LANGS[@]}"; do
        KEPT+=("${TEXT[$split.$lang]}" "$OUT/held-out/$split.$lang")
        COPIES+=('&&' cp "$OUT/held-out/$split.$lang" "$PART/reference.$split.$lang")
        MADE+=("$OUT/data-bin/reference.$split.$lang")
    done
    [[ $TOKENIZER == none ]] || COPIES+=('&&' cp "${TOKENS[$split]}" "$PART/reference.$split.tok.$TARGET")
done
for file in $SUBWORD_FILE $TARGET_SUBWORD_FILE; do
    KEPT+=("$OUT/subwords/$file")
    COPIES+=('&&' cp "$OUT/subwords/$file" "$PART/$file")
done
[[ $VOCABULARY == separate ]] || FLAGS+=(--joined-dictionary)
[[ $SUBWORDS != none || -z $VOCABULARY_SIZE ]] ||
    FLAGS+=(--nwordssrc "$VOCABULARY_SIZE" --nwordstgt "$VOCABULARY_SIZE")
step binarize --inputs "${CLEANED[@]}" "${KEPT[@]}" --replaces "$OUT/data-bin" \
    --known-by text.settings --option OUT --outputs "${MADE[@]}" --watch "$PART" -- \
    fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" \
    --trainpref "$OUT/clean/train" --workers "$WORKERS" "${FLAGS[@]}" --destdir "$PART" \
    "${COPIES[@]}" '&&' cp "$OUT/text.settings" "$PART/text.settings"
log "data for train.sh: $OUT/data-bin"
